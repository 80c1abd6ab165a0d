"""Pareto-smoothed importance weights of q's draws (Vehtari, Simpson, Gelman, Yao & Gabry 2024).

Weights w = p/q turn draws of q into draws of p. The largest of them are fitted by a generalised Pareto
distribution and replaced by its quantiles; its shape k-hat says how many moments the weights have.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .pareto import smoothed_tail

# Fewer finite draws than this say nothing about a tail.
LEAST = 25
# Log weights that differ by less are equal: no average could tell, and single precision may add as much.
EQUAL = 1e-4
# A largest weight, relative to the average, that needs no look at the tail: with 2,000 draws and a k-hat
# of 0.7, a mass of w / (draws (1 - k)), a third of a percent, is beyond it.
TWICE = 2.0


class Weights(NamedTuple):
    """Smoothed weights that sum to one, and the shape k-hat of their tail."""

    w: Float[np.ndarray, " draws"]
    khat: float

    @property
    def effective(self) -> float:
        """1 / sum w^2: as many independent draws of the posterior would tell as much."""
        total = float(np.sum(self.w**2))
        return 1 / total if total > 0 else 0.0

    @property
    def limit(self) -> float:
        """The k-hat from which on weights cannot be relied on, lower for few draws, at most 0.7."""
        return min(1 - 1 / math.log10(max(self.w.size, 11)), 0.7)

    @property
    def usable(self) -> bool:
        """Whether averages with these weights can be relied on.

        Where no draw counts twice, the shape of the tail says nothing: if p is q but for rounding, it is
        that of the rounding. What lies beyond a largest weight of w times the average is w / draws.
        """
        return self.khat < self.limit or self.bounded

    @property
    def bounded(self) -> bool:
        """Whether no weight is `TWICE` the average."""
        return math.isfinite(self.khat) and float(np.max(self.w)) * self.w.size < TWICE

    def resample(self, rng: np.random.Generator, count: int) -> Int[np.ndarray, " count"]:
        """Row numbers of `count` draws by their weights, in random order.

        Systematic resampling: each is taken as often as its weight says, up to rounding.
        """
        places = (rng.random() + np.arange(count)) / count
        rows = np.searchsorted(np.cumsum(self.w), places).clip(0, self.w.size - 1)
        return rng.permutation(rows)


def smooth(log_weights: Float[np.ndarray, " draws"]) -> Weights:
    """From log p - log q up to a constant; minus infinity stands for no weight."""
    finite = np.isfinite(log_weights)
    w = np.zeros(log_weights.size)
    if np.count_nonzero(finite) < LEAST:
        return Weights(w, math.inf)
    smoothed, khat = _smoothed(log_weights[finite] - np.max(log_weights[finite]))
    weights = np.exp(smoothed - np.max(smoothed))
    w[finite] = weights / np.sum(weights)
    return Weights(w, khat)


def _smoothed(
    log_weights: Float[np.ndarray, " draws"],
) -> tuple[Float[np.ndarray, " draws"], float]:
    """Log weights with a smoothed tail, and its shape; equal ones have no tail."""
    size = tail_size(log_weights.size)
    tail = np.sort(log_weights)[-size - 1 :]
    if np.ptp(tail) < EQUAL:
        return log_weights, -math.inf
    with np.errstate(all="ignore"):
        smoothed, khat = smoothed_tail(log_weights, size)
    if math.isfinite(khat) and np.all(np.isfinite(smoothed)):
        return smoothed, khat
    # The fit divides by differences within the tail, which may be zero: single precision rounds to a
    # grid where log densities are large. The shape is then that of a tail with its ties broken.
    gaps = np.diff(tail)
    broken = np.min(gaps[gaps > 0]) * (np.random.default_rng(0).random(log_weights.size) - 0.5)
    moved = log_weights + broken
    with np.errstate(all="ignore"):
        return log_weights, smoothed_tail(moved - np.max(moved), size)[1]


def tail_size(draws: int) -> int:
    """How many of the largest weights are fitted."""
    return int(min(0.2 * draws, 3 * math.sqrt(draws)))
