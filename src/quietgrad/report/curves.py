"""Trajectories of a group of runs: aligned, averaged over repetitions, thinned for a page."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..study import clock
from ..study.records import Record
from ..study.summary import finished, smoothed

STATISTICS = ("median", "mean")


@dataclass(frozen=True)
class Curve:
    """One quantity over the repetitions of a cell, at the steps at which any of them has it.

    `seconds` are medians over repetitions at the same step, as in the paper; `low` and `high` are
    the range. Methods that end themselves are evaluated at steps of their own, so their repetitions are
    aligned by time, and `ends` says that the last value is the answer.
    """

    step: np.ndarray
    seconds: np.ndarray
    median: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    reps: int
    ends: bool = False

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
        return Curve(*(column[keep] for column in columns), reps=self.reps, ends=self.ends)

    def for_limits(self, statistic: str) -> np.ndarray:
        """What an axis is chosen by: the middle, or only the end of a method that ends itself."""
        middle = self.middle(statistic)
        return middle[-1:] if self.ends else middle


def decay(records: Iterable[Record]) -> float:
    """The factor of the exponential moving average: 0.9 for long runs, less for short ones.

    With n evaluations it is n / (n + 50), so that the average never spans more than a small part of
    a run and does not drag the steep start along.
    """
    counts = [
        int(np.sum(np.isfinite(run.elbo))) for run in finished(records) if not run.cell.ends_itself
    ]
    shortest = min((count for count in counts if count), default=0)
    return min(0.9, round(shortest / (shortest + 50), 2))


def curve(records: Sequence[Record], column: str, factor: float = 0.0) -> Curve | None:
    """The curve of a column, each run smoothed by `factor` first; None if no run has a value.

    Methods that end themselves are not smoothed: they have few evaluations.
    """
    ends = any(record.cell.ends_itself for record in records)
    rows = [_known(record, column, 0.0 if ends else factor) for record in records]
    rows = [row for row in rows if len(row[0])]
    if not rows:
        return None
    if ends:
        return _by_time(rows)
    steps = np.unique(np.concatenate([step for step, _, _ in rows]))
    seconds, values = np.full((2, len(rows), len(steps)), math.nan)
    for place, (step, second, value) in enumerate(rows):
        where = np.searchsorted(steps, step)
        seconds[place, where], values[place, where] = second, value
    return Curve(
        steps,
        # Runs that skip some evaluations must not make the time go back.
        np.maximum.accumulate(_median(seconds)),
        np.nanmedian(values, axis=0),
        np.nanmean(values, axis=0),
        np.nanmin(values, axis=0),
        np.nanmax(values, axis=0),
        len(rows),
    )


def _median(seconds: np.ndarray) -> np.ndarray:
    """Medians over the rows that have a clock; NaN if none has."""
    timed = seconds[~np.all(np.isnan(seconds), axis=1)]
    return np.nanmedian(timed, axis=0) if len(timed) else np.full(seconds.shape[1], math.nan)


def _known(record: Record, column: str, factor: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values = record.elbo if column == "elbo" else record.column(column)
    known = np.isfinite(values)
    smooth = smoothed(values[known], factor) if factor else values[known]
    return record.column("step")[known], clock.seconds(record)[known], smooth


def _by_time(rows: Sequence[tuple[np.ndarray, np.ndarray, np.ndarray]]) -> Curve:
    """Repetitions at the times at which any of them was evaluated, each at its last value by then."""
    times = np.unique(np.concatenate([seconds for _, seconds, _ in rows]))
    # A repetition is there from its first evaluation on.
    times = times[times >= max(seconds[0] for _, seconds, _ in rows)]
    last = [np.searchsorted(seconds, times, side="right") - 1 for _, seconds, _ in rows]
    steps = np.stack([row[0][at] for row, at in zip(rows, last, strict=True)])
    values = np.stack([row[2][at] for row, at in zip(rows, last, strict=True)])
    step = np.maximum.accumulate(np.median(steps, axis=0))
    middle = (np.median(values, axis=0), np.mean(values, axis=0))
    return Curve(step, times, *middle, np.min(values, 0), np.max(values, 0), len(rows), ends=True)


def late_limits(
    middles: Sequence[np.ndarray], highs: Sequence[np.ndarray] = ()
) -> tuple[float, float] | None:
    """Limits for an axis of ELBOs (or lppds) that show how the curves end.

    The top is the highest value, of `highs` in their last fifth too, so that no run that ends above the
    middles is cut off. The bottom would be the lowest tenth of what the curves do after
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
    late = [values[len(values) * 4 // 5 :] for values in highs]
    late = [values[np.isfinite(values)] for values in late]
    top = max([top, *(float(np.max(values)) for values in late if len(values))])
    pad = 0.05 * max(top - bottom, 0.1)
    return bottom - pad, top + pad
