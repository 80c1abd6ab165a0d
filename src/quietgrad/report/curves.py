"""Trajectories of a group of runs: aligned by step, averaged over repetitions, thinned for a page."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..study.records import Record
from ..study.summary import finished, smoothed

STATISTICS = ("median", "mean")


@dataclass(frozen=True)
class Curve:
    """One quantity over the repetitions of a cell, at the steps at which any of them has it.

    `seconds` are medians over repetitions at the same step, as in the paper; `low` and `high` are
    the range.
    """

    step: np.ndarray
    seconds: np.ndarray
    median: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    reps: int

    def middle(self, statistic: str) -> np.ndarray:
        """The medians or the means."""
        if statistic not in STATISTICS:
            raise ValueError(f"unknown statistic {statistic!r}; known: {', '.join(STATISTICS)}")
        return self.median if statistic == "median" else self.mean

    def x(self, axis: str) -> np.ndarray:
        """The column "step" or "seconds"."""
        return self.step if axis == "step" else self.seconds

    def thinned(self, points: int) -> "Curve":
        """About so many of the points, with the first and the last."""
        if len(self.step) <= points:
            return self
        keep = np.unique(np.round(np.linspace(0, len(self.step) - 1, points)).astype(int))
        columns = (self.step, self.seconds, self.median, self.mean, self.low, self.high)
        return Curve(*(column[keep] for column in columns), reps=self.reps)


def decay(records: Iterable[Record]) -> float:
    """The factor of the exponential moving average: 0.9 for long runs, less for short ones.

    With n evaluations it is n / (n + 50), so that the average never spans more than a small part of
    a run and does not drag the steep start along.
    """
    counts = [int(np.sum(np.isfinite(run.column("elbo")))) for run in finished(records)]
    shortest = min((count for count in counts if count), default=0)
    return min(0.9, round(shortest / (shortest + 50), 2))


def curve(records: Sequence[Record], column: str, factor: float = 0.0) -> Curve | None:
    """The curve of a column, each run smoothed by `factor` first; None if no run has a value."""
    rows = [_known(record, column, factor) for record in records]
    rows = [row for row in rows if len(row[0])]
    if not rows:
        return None
    steps = np.unique(np.concatenate([step for step, _, _ in rows]))
    seconds, values = np.full((2, len(rows), len(steps)), math.nan)
    for place, (step, second, value) in enumerate(rows):
        where = np.searchsorted(steps, step)
        seconds[place, where], values[place, where] = second, value
    return Curve(
        steps,
        # Runs that skip some evaluations must not make the time go back.
        np.maximum.accumulate(np.nanmedian(seconds, axis=0)),
        np.nanmedian(values, axis=0),
        np.nanmean(values, axis=0),
        np.nanmin(values, axis=0),
        np.nanmax(values, axis=0),
        len(rows),
    )


def _known(record: Record, column: str, factor: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values = record.column(column)
    known = np.isfinite(values)
    smooth = smoothed(values[known], factor) if factor else values[known]
    return record.column("step")[known], record.column("seconds")[known], smooth


def late_limits(middles: Sequence[np.ndarray]) -> tuple[float, float] | None:
    """Limits for an axis of ELBOs (or lppds) that show how the curves end.

    The top is the highest value. The bottom would be the lowest tenth of what the curves do after
    their first fifth, but not so low that the differences at the end, the rise over the last fifth, or
    one nat, take up less than a sixth of the axis.
    """
    middles = [values[np.isfinite(values)] for values in middles]
    middles = [values for values in middles if len(values)]
    if not middles:
        return None
    later = [values[len(values) // 5 :] for values in middles]
    ends = [float(np.median(values[-max(1, len(values) // 10) :])) for values in middles]
    top = max(float(np.max(values)) for values in later)
    bottom = min(float(np.quantile(values, 0.1)) for values in later)
    rises = [
        end - float(values[len(values) * 4 // 5 - 1]) for end, values in zip(ends, middles, strict=True)
    ]
    reach = 6 * max(max(ends) - min(ends), 1.0, 2 * (top - max(ends)), *rises)
    bottom = max(bottom, top - reach)
    # Runs that end far below the others stay in sight.
    bottom = min(bottom, *ends)
    pad = 0.05 * max(top - bottom, 0.1)
    return bottom - pad, top + pad
