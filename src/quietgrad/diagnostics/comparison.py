"""How far q's means and scales are from the posterior's, estimated twice, each with its error.

By importance weights, and by chains started at draws of q. Chains that have not quite forgotten their
start give their limit nevertheless: with E[z_late | z_0] = a + r z_0, the mean at rest is a / (1 - r).
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .chains import Chains
from .psis import Weights
from .settings import DEFAULT, Diagnostics

Vector = Float[np.ndarray, " dim"]


class Comparison(NamedTuple):
    """Posterior mean minus q's, in posterior sds, and log(q's sd / posterior sd), with standard errors.

    An error is infinite where nothing can be said.
    """

    shift: Vector
    shift_error: Vector
    log_ratio: Vector
    log_ratio_error: Vector

    def some(self, chosen: slice) -> "Comparison":
        """Some of the numbers."""
        return Comparison(*(vector[chosen] for vector in self))

    def known(self) -> "Comparison":
        """With an infinite error where an estimate or its error is not a number."""
        means = np.isfinite(self.shift) & ~np.isnan(self.shift_error)
        scales = np.isfinite(self.log_ratio) & ~np.isnan(self.log_ratio_error)
        return Comparison(
            np.where(means, self.shift, 0.0),
            np.where(means, self.shift_error, math.inf),
            np.where(scales, self.log_ratio, 0.0),
            np.where(scales, self.log_ratio_error, math.inf),
        )

    def sharper(self, other: "Comparison", *, mean: float, scale: float) -> "Comparison":
        """This one where its errors are below `mean` and `scale`; else that with the smaller error."""
        means = self.shift_error <= np.maximum(mean, other.shift_error)
        scales = self.log_ratio_error <= np.maximum(scale, other.log_ratio_error)
        return Comparison(
            np.where(means, self.shift, other.shift),
            np.where(means, self.shift_error, other.shift_error),
            np.where(scales, self.log_ratio, other.log_ratio),
            np.where(scales, self.log_ratio_error, other.log_ratio_error),
        )


def unknown(dim: int) -> Comparison:
    """Nothing is known."""
    nothing, never = np.zeros(dim), np.full(dim, math.inf)
    return Comparison(nothing, never, nothing, never)


def by_weights(z: Float[np.ndarray, "draws dim"], weights: Weights) -> Comparison:
    """Weighted against plain moments of the same draws, so that their common noise cancels."""
    dim = z.shape[1]
    if not weights.usable or weights.effective < 10:
        return unknown(dim)
    w, plain = weights.w[:, None], 1 / len(z)
    mean, own = np.sum(w * z, axis=0), np.mean(z, axis=0)
    variance, own_variance = np.sum(w * (z - mean) ** 2, axis=0), np.var(z, axis=0)
    noise = w * (z - mean) - plain * (z - own)
    std = np.sqrt(np.maximum(variance, np.finfo(float).tiny))
    spread = w * ((z - mean) ** 2 / variance - 1) - plain * ((z - own) ** 2 / own_variance - 1)
    return Comparison(
        (mean - own) / std,
        np.sqrt(np.sum(noise**2, axis=0)) / std,
        0.5 * np.log(own_variance / variance),
        0.5 * np.sqrt(np.sum(spread**2, axis=0)),
    ).known()


def by_chains(
    z: Float[np.ndarray, "draws dim"], chains: Chains, settings: Diagnostics = DEFAULT
) -> Comparison:
    """Late states of the chains against the moments of q's draws."""
    late, own, own_variance = chains.late(), np.mean(z, axis=0), np.var(z, axis=0)
    mean, mean_error = _at_rest(chains.start, np.mean(late, axis=0), settings.stuck)
    center = np.where(np.isfinite(mean), mean, own)
    squares = np.mean((late - center) ** 2, axis=0)
    variance, variance_error = _at_rest((chains.start - center) ** 2, squares, settings.stuck)
    # An extrapolated variance can come out negative; the states' own is then the better guess.
    poor = ~(variance > 0)
    variance = np.where(poor, np.mean(squares, axis=0), variance)
    std = np.sqrt(np.maximum(variance, np.finfo(float).tiny))
    with np.errstate(all="ignore"):
        log_ratio = 0.5 * np.log(own_variance / variance)
        log_error = np.where(poor, math.inf, 0.5 * variance_error / variance)
    return Comparison((center - own) / std, mean_error / std, log_ratio, log_error).known()


def _at_rest(
    start: Float[np.ndarray, "chains dim"], late: Float[np.ndarray, "chains dim"], most: float
) -> tuple[Vector, Vector]:
    """Limit of the mean of `late` and its error, by regression on the start, for each coordinate.

    Unknown where the slope of the regression is above `most`.
    """
    first, last = np.mean(start, axis=0), np.mean(late, axis=0)
    centred = start - first
    square = np.maximum(np.sum(centred**2, axis=0), np.finfo(float).tiny)
    follows = np.sum(centred * (late - last), axis=0) / square
    residual = late - last - follows * centred
    noise = np.sum(residual**2, axis=0) / (len(late) - 2)
    stuck = follows > most
    follows = np.clip(follows, -0.5, most)
    limit = (last - follows * first) / (1 - follows)
    # Of the mean of `late`, and of r: d limit / dr = (last - first) / (1 - r)^2.
    error = np.sqrt(noise / len(late) + noise / square * ((last - first) / (1 - follows)) ** 2)
    return limit, np.where(stuck, math.inf, error / (1 - follows))
