"""Pareto-smoothed importance weights of q's draws (Vehtari, Simpson, Gelman, Yao & Gabry 2024).

Weights w = p/q turn draws of q into draws of p. The largest of them are fitted by a generalised Pareto
distribution and replaced by its quantiles; its shape k-hat says how many moments the weights have.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

# Fewer finite draws than this say nothing about a tail.
LEAST = 25
# Log weights that differ by less are equal: no average could tell, and single precision may add as much.
EQUAL = 1e-4
# The shape towards which that of a short tail is drawn, and the observations that this counts as.
PRIOR_SHAPE, PRIOR_COUNT = 0.5, 10


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
        """Whether averages with these weights can be relied on."""
        return self.khat < self.limit

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
    order = np.argsort(log_weights)
    tail = log_weights[order[-size - 1 :]]
    if np.ptp(tail) < EQUAL:
        return log_weights, -math.inf
    weights = np.exp(tail)
    excess = weights[1:] - weights[0]
    if excess[max(0, int(size / 4 + 0.5) - 1)] <= 0:
        # Ties up to the lower quartile: single precision rounds to a grid where log densities are
        # large. The shape is then that of a tail with its ties broken.
        gaps = np.diff(tail)
        noise = np.random.default_rng(0).random(tail.size) - 0.5
        broken = np.exp(np.sort(tail + np.min(gaps[gaps > 0]) * noise))
        return log_weights, pareto(broken[1:] - broken[0])[0]
    khat, scale = pareto(excess)
    places = (np.arange(size) + 0.5) / size
    # Quantiles of the generalised Pareto distribution, sigma ((1 - u)^-k - 1) / k.
    depths = -np.log1p(-places)
    quantiles = scale * (np.expm1(khat * depths) / khat if khat else depths)
    smoothed = log_weights.copy()
    smoothed[order[-size:]] = np.minimum(np.log(weights[0] + quantiles), tail[-1])
    return smoothed, khat


def pareto(excess: Float[np.ndarray, " tail"]) -> tuple[float, float]:
    """Shape k and scale sigma of a generalised Pareto distribution (Zhang & Stephens 2009).

    `excess` is sorted and positive from its lower quartile on. With b = k / sigma (k as in
    (1 + k x / sigma)^(-1/k - 1)), the likelihood has its maximum over k at k(b) = mean log(1 + b x).
    The estimate is the mean of b under this profile likelihood and a weak prior, by quadrature on a
    grid of quantiles of the prior. k is drawn towards 1/2 as by ten further observations (Vehtari et
    al. 2024).
    """
    count = excess.size
    points = 30 + int(math.sqrt(count))
    u = (np.arange(points) + 0.5) / points
    quartile = excess[max(0, int(count / 4 + 0.5) - 1)]
    b = (1 / np.sqrt(u) - 1) / (3 * quartile) - 1 / excess[-1]
    with np.errstate(all="ignore"):
        k = np.mean(np.log1p(b[:, None] * excess), axis=1)
        profile = count * (np.log(b / k) - k - 1)
    profile = np.where(np.isfinite(profile), profile, -math.inf)
    weights = np.exp(profile - np.max(profile))
    weights = np.where(weights >= 10 * np.finfo(float).eps * np.sum(weights), weights, 0.0)
    best = float(weights @ b / np.sum(weights))
    shape = float(np.mean(np.log1p(best * excess)))
    scale = shape / best if best else float(np.mean(excess))
    return (count * shape + PRIOR_COUNT * PRIOR_SHAPE) / (count + PRIOR_COUNT), scale


def tail_size(draws: int) -> int:
    """How many of the largest weights are fitted."""
    return int(min(0.2 * draws, 3 * math.sqrt(draws)))
