"""What a study's records say in a few numbers: best ELBO, time to target, medians over repetitions.

The target on a task and family is the best ELBO that any run ends with, less one nat. A run arrives
where it is at the target and stays there to its end (`evaluation/arrival.py`), and does not arrive if
it ends below the target by the mean of its last tenth: medians do not see a run that keeps dipping.
Records are paired (all rows of a repetition share evaluation draws), so what noise is left hits every
row alike. Pure numpy: reports use this without jax.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ..evaluation.arrival import held_index
from . import clock
from .plateau import late_elbo, on_plateau
from .records import Record

MARGIN = 1.0
WINDOW = 3
# The group of cells that are there for the variance at their start, and go nowhere.
NOISE = "noise"

Problem = tuple[str, str]


@dataclass(frozen=True)
class Arrival:
    """When one record came within `nats` of the best; `steps` is None if it never did.

    `best` is the best ELBO that any record ends with on this task and family, whatever its method,
    estimator, draws or group, and `target` is `best - nats`. `seconds` are seconds of optimisation,
    None if it never came, or if its seconds mean nothing.
    """

    record: Record
    best: float
    target: float
    seconds: float | None
    steps: int | None


@dataclass(frozen=True)
class Row:
    """Medians over the repetitions of one task, family, label and number of draws.

    `seconds_to_target` and `steps_to_target` count a repetition that never arrives as infinitely
    late, and are None if that makes the median infinite (or, for seconds, if there is no clock);
    `arrived` of `reps` did arrive, and `plateaus` of them ended on a plateau. `elbo` is that of the
    final answer, `gap` how far below the target runs end, `steps` their length, and `seconds`,
    `step_seconds`, `variance_ratio` (its median over the last third of each run) and `compile_seconds`
    are NaN where no repetition has them. Compiling counts where a cell was alone on its machine.
    """

    group: str
    task: str
    family: str
    label: str
    draws: int | None
    method: str
    reps: int
    elbo: float
    gap: float
    steps: float
    seconds: float
    step_seconds: float
    arrived: int
    plateaus: int
    seconds_to_target: float | None
    steps_to_target: float | None
    variance_ratio: float
    compile_seconds: float

    @property
    def timed(self) -> bool:
        """Whether there is a clock."""
        return not math.isnan(self.seconds)

    @property
    def shortfall(self) -> str:
        """Why there is no arrival, for a table; empty if there is one."""
        if self.steps_to_target is not None:
            return ""
        if self.arrived:
            return f"only {self.arrived} of {self.reps} arrived"
        if not math.isfinite(self.gap):
            return "not finite"
        return f"ends {max(self.gap, 0.01):,.{2 if self.gap < 10 else 0}f} short"


def settled(elbo: np.ndarray) -> np.ndarray:
    """The median of the last three evaluations at each evaluation (of fewer at the start).

    NaN counts as minus infinity.
    """
    values = np.where(np.isnan(elbo), -np.inf, np.asarray(elbo, float))
    # An even number of values takes the lower one.
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
    """The best ELBO that a run ends with on each (task, family), over all that was run on it."""
    best: dict[Problem, float] = {}
    for record in finished(records):
        end = late_elbo(record)
        if math.isfinite(end):
            key = problem(record)
            best[key] = max(best.get(key, -math.inf), end)
    return best


def time_to_target(records: Iterable[Record], nats: float = MARGIN) -> list[Arrival]:
    """For each finished record: when it came within `nats` of the best, and stayed."""
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


def summarise(records: Iterable[Record], nats: float = MARGIN) -> list[Row]:
    """One row per group, task, family, label and draws, in the order in which they appear.

    Cells of the group `NOISE` have none.
    """
    rows: dict[tuple, list[Arrival]] = {}
    for arrival in time_to_target(records, nats):
        cell = arrival.record.cell
        if cell.group == NOISE:
            continue
        key = (cell.group, cell.task, cell.family, cell.label, cell.draws, cell.method)
        rows.setdefault(key, []).append(arrival)
    return [_row(key, arrivals) for key, arrivals in rows.items()]


def finished(records: Iterable[Record]) -> list[Record]:
    """The records with status "done" (a fit that turned non-finite is done, too)."""
    return [record for record in records if record.status == "done"]


def problem(record: Record) -> Problem:
    """What a record is compared within: its task and family."""
    return record.cell.task, record.cell.family


def _arrival(record: Record, best: float, nats: float) -> Arrival:
    target, elbo = best - nats, record.elbo
    # The final answer was evaluated once more: a run may arrive with its last step.
    answer = float(record.outcome.get("elbo", math.nan))
    # A method that ends itself is evaluated a few times only: it arrives with its answer.
    told = np.append(elbo, answer)
    place = held_index(told, target, 2) if record.cell.ends_itself else held_index(told, target)
    if place is None or len(elbo) == 0 or not late_elbo(record) >= target:
        return Arrival(record, best, target, None, None)
    place = min(place, len(elbo) - 1)
    spent = float(clock.seconds(record)[place])
    steps = int(record.column("step")[place])
    return Arrival(record, best, target, None if math.isnan(spent) else spent, steps)


def _row(key: tuple, arrivals: list[Arrival]) -> Row:
    records = [arrival.record for arrival in arrivals]
    return Row(
        *key,
        reps=len(records),
        elbo=_median(float(r.outcome.get("elbo", math.nan)) for r in records),
        gap=_median(arrival.target - late_elbo(arrival.record) for arrival in arrivals),
        steps=_median(float(np.max(r.column("step"), initial=0.0)) for r in records),
        seconds=_median(float(np.max(clock.seconds(r), initial=0.0)) for r in records),
        step_seconds=_median(clock.seconds_per_step(r) for r in records),
        arrived=sum(arrival.steps is not None for arrival in arrivals),
        plateaus=sum(map(on_plateau, records)),
        seconds_to_target=_median_arrival(arrival.seconds for arrival in arrivals),
        steps_to_target=_median_arrival(arrival.steps for arrival in arrivals),
        variance_ratio=_median(late_variance_ratio(r) for r in records),
        compile_seconds=_median(
            float(r.outcome.get("compile_seconds", math.nan))
            for r in records
            if r.outcome.get("timed") is not False
        ),
    )


def _median(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.median(known)) if known else math.nan


def _median_arrival(values: Iterable[float | None]) -> float | None:
    middle = float(np.median([math.inf if value is None else value for value in values]))
    return middle if math.isfinite(middle) else None
