"""How surely a number is known: an interval over repetitions, and what it says about a range.

Every measurement is reduced to one number per repetition first (estimators of a repetition share
initial point, minibatches and evaluation draws, so differences are paired; several tasks and
families are pooled within the repetition). The repetitions are then independent, and Student's t
gives the interval. One repetition gives no interval, and so never a verdict.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from .claim import Part, Verdict

LEVEL = 0.90


@dataclass(frozen=True)
class Interval:
    """The middle of what the repetitions say, and a 90% interval (infinite for one repetition)."""

    middle: float
    low: float
    high: float
    reps: int

    def within(self, low: float, high: float) -> Verdict:
        """Holds if the whole interval is in [low, high], does not if it lies apart from it."""
        if low <= self.low and self.high <= high:
            return Verdict.HOLDS
        if self.high < low or self.low > high:
            return Verdict.DOES_NOT
        return Verdict.CANNOT_TELL

    def part(
        self,
        verdict: Verdict,
        why: str,
        value: str,
        spec: str,
        *,
        about: str = "",
        over: str = "repetitions",
    ) -> Part:
        """A part of a claim with this interval, its ends in the format `spec`, as its uncertainty."""
        if self.reps < 2:
            return Part(verdict, f"{why} (one repetition, so no interval; three could tell)", value)
        if verdict is Verdict.CANNOT_TELL:
            why = f"{why} (the interval reaches over the edge; more {over} could tell)"
        ends = f"{about}{self.low:{spec}} to {self.high:{spec}}"
        return Part(verdict, why, value, ends, self.reps, over)


def mean(values: Sequence[float]) -> Interval:
    """The mean over repetitions."""
    array = np.asarray(values, float)
    middle, reps = float(np.mean(array)), len(array)
    if reps < 2:
        return Interval(middle, -math.inf, math.inf, reps)
    error = float(np.std(array, ddof=1)) / math.sqrt(reps)
    half = float(stdtrit(reps - 1, 0.5 + LEVEL / 2)) * error
    return Interval(middle, middle - half, middle + half, reps)


def share(values: Sequence[float]) -> Interval:
    """The mean of shares: as `mean`, with the interval kept within 0 and 1."""
    whole = mean(values)
    if whole.reps < 2:
        return whole
    return Interval(whole.middle, max(0.0, whole.low), min(1.0, whole.high), whole.reps)


def geometric(values: Sequence[float]) -> Interval:
    """The geometric mean over repetitions, for ratios and other positive numbers."""
    logs = mean(np.log(np.asarray(values, float)).tolist())
    return Interval(_exp(logs.middle), _exp(logs.low), _exp(logs.high), logs.reps)


def _exp(value: float) -> float:
    return math.inf if value > 700 else math.exp(value)
