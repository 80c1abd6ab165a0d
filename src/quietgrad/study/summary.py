"""What a study's records say in a few numbers: best ELBO, time to target, medians over repetitions.

An evaluation of the ELBO is noisy, so one lucky value must not set the target or count as an arrival:
everything here looks at the *settled* ELBO, the median of the last three evaluations. Unlike an
exponential average it does not remember the first, hugely negative values for dozens of evaluations.
Records are paired (all estimators of a repetition share evaluation draws), so what noise is left hits
every estimator alike. Pure numpy: reports use this without jax.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .records import Record

WINDOW = 3

Problem = tuple[str, str]


@dataclass(frozen=True)
class Arrival:
    """When one record came within `nats` of the best; `seconds` and `steps` are None if it never did.

    `best` is the best settled ELBO that any record has on this task and family, whatever its
    estimator, draws or group, and `target` is `best - nats`. `seconds` are seconds of optimisation.
    """

    record: Record
    best: float
    target: float
    seconds: float | None
    steps: int | None


@dataclass(frozen=True)
class Row:
    """Medians over the repetitions of one task, family, estimator and number of draws.

    `seconds_to_target` and `steps_to_target` count a repetition that never arrives as infinitely
    late, and are None if that makes the median infinite; `arrived` of `reps` did arrive. `elbo`,
    `seconds` and `variance_ratio` (its median over the last third of each run) are NaN where no
    repetition has them.
    """

    group: str
    task: str
    family: str
    label: str
    draws: int
    reps: int
    elbo: float
    seconds: float
    arrived: int
    seconds_to_target: float | None
    steps_to_target: float | None
    variance_ratio: float


def settled(elbo: np.ndarray) -> np.ndarray:
    """The median of the last three evaluations at each evaluation (of fewer at the start).

    NaN counts as minus infinity.
    """
    values = np.where(np.isnan(elbo), -np.inf, np.asarray(elbo, float))
    # An even number of values takes the lower one: an arrival needs two good evaluations.
    return np.array(
        [
            np.sort(values[max(0, i + 1 - WINDOW) : i + 1])[min(i, WINDOW - 1) // 2]
            for i in range(len(values))
        ]
    )


def smoothed(values: np.ndarray, decay: float = 0.9) -> np.ndarray:
    """Exponential moving average that starts at the first finite value and skips what is not finite."""
    out, level = np.full(len(values), math.nan), math.nan
    for i, value in enumerate(np.asarray(values, float)):
        if math.isfinite(value):
            level = value if math.isnan(level) else decay * level + (1 - decay) * value
        out[i] = level
    return out


def best_elbo(records: Iterable[Record]) -> dict[Problem, float]:
    """The best settled ELBO of each (task, family), over all that was run on it."""
    best: dict[Problem, float] = {}
    for record in finished(records):
        key = problem(record)
        top = float(np.max(settled(record.column("elbo")), initial=-math.inf))
        if math.isfinite(top):
            best[key] = max(best.get(key, -math.inf), top)
    return best


def time_to_target(records: Iterable[Record], nats: float = 1.0) -> list[Arrival]:
    """For each finished record: when its settled ELBO came within `nats` of the best."""
    done = finished(records)
    best = best_elbo(done)
    return [_arrival(record, best.get(problem(record), math.nan), nats) for record in done]


def late_variance_ratio(record: Record) -> float:
    """Median variance ratio over the last third of the steps; NaN if it was not evaluated there."""
    step, ratio = record.column("step"), record.column("variance_ratio")
    if len(step) == 0:
        return math.nan
    late = (3 * step >= 2 * np.max(step)) & np.isfinite(ratio)
    return float(np.median(ratio[late])) if np.any(late) else math.nan


def summarise(records: Iterable[Record], nats: float = 1.0) -> list[Row]:
    """One row per group, task, family, estimator and draws, in the order in which they appear."""
    rows: dict[tuple, list[Arrival]] = {}
    for arrival in time_to_target(records, nats):
        cell = arrival.record.cell
        key = (cell.group, cell.task, cell.family, cell.label, cell.draws)
        rows.setdefault(key, []).append(arrival)
    return [_row(key, arrivals) for key, arrivals in rows.items()]


def finished(records: Iterable[Record]) -> list[Record]:
    """The records with status "done" (a fit that turned non-finite is done, too)."""
    return [record for record in records if record.status == "done"]


def problem(record: Record) -> Problem:
    """What a record is compared within: its task and family."""
    return record.cell.task, record.cell.family


def _arrival(record: Record, best: float, nats: float) -> Arrival:
    target = best - nats
    there = np.flatnonzero(settled(record.column("elbo")) >= target)
    if len(there) == 0:
        return Arrival(record, best, target, None, None)
    first = int(there[0])
    seconds, step = record.column("seconds")[first], record.column("step")[first]
    return Arrival(record, best, target, float(seconds), int(step))


def _row(key: tuple, arrivals: list[Arrival]) -> Row:
    records = [arrival.record for arrival in arrivals]
    return Row(
        *key,
        reps=len(records),
        elbo=_median(float(r.outcome.get("elbo", math.nan)) for r in records),
        seconds=_median(float(np.max(r.column("seconds"), initial=0.0)) for r in records),
        arrived=sum(arrival.seconds is not None for arrival in arrivals),
        seconds_to_target=_median_arrival(arrival.seconds for arrival in arrivals),
        steps_to_target=_median_arrival(arrival.steps for arrival in arrivals),
        variance_ratio=_median(late_variance_ratio(r) for r in records),
    )


def _median(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.median(known)) if known else math.nan


def _median_arrival(values: Iterable[float | None]) -> float | None:
    middle = float(np.median([math.inf if value is None else value for value in values]))
    return middle if math.isfinite(middle) else None
