"""Whether a run has reached a plateau by its end.

The rule: the median ELBO of the last tenth of the evaluations is less than `NATS` above the median of
the tenth before, or less than two standard errors of that difference, so that noise alone is not taken
for a rise. A method that ends itself has reached a plateau if it says that it converged.

A run that is still rising has not shown where it leads. On frisk one of three starts was at -1200 after
20,000 steps, 350 nats below where it would end; a mean over repetitions with such a one in it says
nothing about the end of a run. Claims about the end use the repetitions that reached a plateau.
"""

import math

import numpy as np

from .records import Record

NATS = 0.5
LEAST = 3


def on_plateau(record: Record) -> bool:
    """Whether the run has reached a plateau; not if it ended non-finite, or has few evaluations."""
    status = record.outcome.get("fit_status")
    if status == "non-finite":
        return False
    if record.cell.ends_itself:
        return status == "converged"
    rise, error = late_rise(record)
    return rise < max(NATS, 2 * error)


def late_rise(record: Record) -> tuple[float, float]:
    """How far the last tenth of the evaluations is above the tenth before, and its standard error.

    Both in nats; infinite and zero if there are fewer than `LEAST` evaluations in a tenth.
    """
    elbo = record.elbo
    elbo = elbo[np.isfinite(elbo)]
    count = len(elbo) // 10
    if count < LEAST:
        return math.inf, 0.0
    before, after = elbo[-2 * count : -count], elbo[-count:]
    # The median of n normal values has 1.25 times the standard error of their mean.
    error = 1.25 * math.hypot(_spread(before), _spread(after)) / math.sqrt(count)
    return float(np.median(after) - np.median(before)), error


def late_elbo(record: Record) -> float:
    """Where a run ends: the mean ELBO over the last tenth of its evaluations, `LEAST` of them at least.

    For a method that ends itself, the ELBO of its answer. NaN if there is none.
    """
    if record.cell.ends_itself:
        return float(record.outcome.get("elbo", math.nan))
    return tail_mean(record.elbo)


def tail_mean(values: np.ndarray) -> float:
    """The mean over the last tenth of the finite values, `LEAST` at least; NaN if there are none."""
    known = values[np.isfinite(values)]
    return float(np.mean(known[-max(LEAST, len(known) // 10) :])) if len(known) else math.nan


def _spread(values: np.ndarray) -> float:
    """The standard deviation, from the median distance to the median: wild values do not count."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
