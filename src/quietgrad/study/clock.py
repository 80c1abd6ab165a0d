"""Which seconds of a record mean something, and where they come from.

A cell that had its machine to itself has its own. A cell that ran beside others has none; a timing pass
(`quietgrad study time`) gives it the seconds of a step, and its time is that times its steps. No jax.
"""

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping

import numpy as np

from .jobs import configuration
from .records import Record


class Clock(enum.StrEnum):
    """Where the seconds of a record come from."""

    OWN = "own"
    TIMING_PASS = "timing pass"
    NONE = "none"


def clock_of(record: Record) -> Clock:
    """Where the seconds of a record come from."""
    if rounds(record):
        return Clock.TIMING_PASS
    return Clock.NONE if record.outcome.get("timed") is False else Clock.OWN


def rounds(record: Record) -> tuple[float, ...]:
    """Seconds of a step in each round of the timing pass; empty for a record without one."""
    return tuple(record.outcome.get("step_seconds", ()))


def seconds(record: Record) -> np.ndarray:
    """Seconds of optimisation at each evaluation; NaN if they mean nothing."""
    match clock_of(record):
        case Clock.OWN:
            return record.column("seconds")
        case Clock.TIMING_PASS:
            return record.column("step") * float(np.median(rounds(record)))
        case _:
            return np.full(len(record.column("step")), math.nan)


def seconds_per_step(record: Record) -> float:
    """Seconds of a step, averaged over the run or over the timing pass; NaN if they mean nothing."""
    step, spent = record.column("step"), seconds(record)
    if len(step) < 2 or not step[-1] > step[0] or not spent[-1] > spent[0]:
        return math.nan
    return float((spent[-1] - spent[0]) / (step[-1] - step[0]))


def with_timing(records: Iterable[Record], times: Mapping[tuple, tuple[float, ...]]) -> list[Record]:
    """The records, those that ran beside others with the step times of their configuration.

    `times` maps configurations (`jobs.configuration`) to the seconds of a step in each round.
    """
    joined = []
    for record in records:
        found = times.get(configuration(record.cell), ())
        if found and clock_of(record) is not Clock.OWN:
            outcome = {**record.outcome, "step_seconds": list(found)}
            record = dataclasses.replace(record, outcome=outcome)
        joined.append(record)
    return joined
