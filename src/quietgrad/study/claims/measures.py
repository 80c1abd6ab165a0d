"""Numbers drawn from a single record, NaN where it does not have them."""

import math

import numpy as np

from ..records import Record
from ..summary import smoothed


def late_elbo(record: Record) -> float:
    """Mean ELBO over the last tenth of the evaluations."""
    return _tail_mean(record.column("elbo"), 0.1)


def late_lppd(record: Record) -> float:
    """Mean test lppd over the last tenth of the evaluations that have one."""
    return _tail_mean(record.column("lppd"), 0.1)


def still_rising(record: Record) -> float:
    """How many nats the last fifth of the evaluations is above the fifth before it."""
    elbo = _finite(record.column("elbo"))
    count = len(elbo) // 5
    if count < 2:
        return math.inf
    return float(np.mean(elbo[-count:]) - np.mean(elbo[-2 * count : -count]))


def plateau_tolerance(record: Record) -> float:
    """Rises below this count as a plateau: one nat, or 0.2% of the ELBO if that is more."""
    return max(1.0, 0.002 * abs(late_elbo(record)))


def arrived(record: Record) -> bool:
    """Whether the run has reached a plateau."""
    return still_rising(record) < plateau_tolerance(record)


def timed(record: Record) -> bool:
    """Whether the cell had its machine to itself, so that its seconds mean something."""
    return record.outcome.get("timed") is not False


def seconds_per_step(record: Record) -> float:
    """Optimisation time of a step, averaged over the run; NaN if other cells ran beside it."""
    step, seconds = record.column("step"), record.column("seconds")
    if not timed(record) or len(step) < 2 or step[-1] <= step[0] or seconds[-1] <= seconds[0]:
        return math.nan
    return float((seconds[-1] - seconds[0]) / (step[-1] - step[0]))


def typical_ratio(record: Record) -> float:
    """Median variance ratio over the whole run."""
    ratio = _finite(record.column("variance_ratio"))
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


def _tail_mean(values: np.ndarray, share: float) -> float:
    known = _finite(values)
    return float(np.mean(known[-max(1, int(share * len(known))) :])) if len(known) else math.nan


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]
