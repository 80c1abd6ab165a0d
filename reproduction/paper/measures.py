"""Numbers drawn from a single record or a pair of them, NaN where they do not have them."""

import math
from collections.abc import Sequence

import numpy as np

from quietgrad.study.clock import rounds, seconds_per_step
from quietgrad.study.plateau import tail_mean
from quietgrad.study.records import Record
from quietgrad.study.summary import smoothed

ROUNDS = "rounds of the timing pass"


def late_lppd(record: Record) -> float:
    """Mean test lppd over the last tenth of the evaluations that have one."""
    return tail_mean(record.column("lppd"))


def step_ratios(pairs: Sequence[tuple[Record, Record]]) -> tuple[list[tuple[int, float]], str]:
    """Seconds of a step, second over first, numbered; and what the numbers count.

    A ratio for each repetition, or for each round of the timing pass where that is the clock: there the
    two were measured one after the other, and all repetitions share its times.
    """
    timing = [(rounds(first), rounds(second)) for first, second in pairs]
    if timing and all(a and b for a, b in timing):
        first, second = timing[0]
        found = [(place, b / a) for place, (a, b) in enumerate(zip(first, second, strict=False))]
        return found, ROUNDS
    ratios = [(b.cell.rep, seconds_per_step(b) / seconds_per_step(a)) for a, b in pairs]
    return [(rep, ratio) for rep, ratio in ratios if math.isfinite(ratio)], "repetitions"


def typical_ratio(record: Record) -> float:
    """Median variance ratio over the whole run."""
    ratio = record.column("variance_ratio")
    ratio = ratio[np.isfinite(ratio)]
    return float(np.median(ratio)) if len(ratio) else math.nan


def first_variance(record: Record) -> tuple[int, float]:
    """The step at which gradient variance was first evaluated, and its value there."""
    variance = record.column("variance")
    known = np.flatnonzero(np.isfinite(variance) & (variance > 0))
    if len(known) == 0:
        return -1, math.nan
    return int(record.column("step")[known[0]]), float(variance[known[0]])


def step_of_ratio(record: Record, level: float) -> float:
    """The step from which the smoothed log variance ratio is first below a level; inf if never."""
    ratio, step = record.column("variance_ratio"), record.column("step")
    known = np.isfinite(ratio) & (ratio > 0)
    if not np.any(known):
        return math.nan
    below = smoothed(np.log(ratio[known]), decay=0.5) < math.log(level)
    return float(step[known][np.argmax(below)]) if np.any(below) else math.inf
