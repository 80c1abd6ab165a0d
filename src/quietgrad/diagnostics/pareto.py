"""The generalised Pareto distribution fitted to a tail (Zhang & Stephens 2009), in NumPy.

With x_i > 0 the excesses over a cutoff, shape k and scale sigma = -k / b:

    k(b) = mean log(1 - b x_i),   profile log likelihood l(b) = n (log(-b / k(b)) - k(b) - 1).

The estimate is the mean of b over a grid of its quantiles, weighted by exp l(b). The package that has
this too imports SciPy's statistics, xarray and pandas: more than the rest of a diagnosis takes.
"""

import numpy as np
from jaxtyping import Float

# Quantiles of b: 30 + sqrt(n) of them, spread by a prior around the first quartile of the data.
GRID, PRIOR_SPREAD = 30, 3.0
# The shape is shrunk towards 0.5 as by ten further draws (Vehtari et al. 2024).
PRIOR_DRAWS, PRIOR_SHAPE = 10, 0.5


def fit_pareto(x: Float[np.ndarray, " tail"]) -> tuple[float, float]:
    """Shape and scale for sorted excesses; not finite where they have ties at zero."""
    n = len(x)
    count = GRID + int(np.sqrt(n))
    quantiles = 1 - np.sqrt(count / (np.arange(count) + 0.5))
    b = 1 / x[-1] + quantiles / (PRIOR_SPREAD * x[int(n / 4 + 0.5) - 1])
    shapes = np.mean(np.log1p(-b[:, None] * x), axis=1)
    heights = n * (np.log(-b / shapes) - shapes - 1)
    weights = np.exp(heights - np.max(heights))
    weights = np.where(weights >= 10 * np.finfo(float).eps * np.sum(weights), weights, 0.0)
    mean = float(b @ weights / np.sum(weights))
    shape = float(np.mean(np.log1p(-mean * x)))
    shrunk = (n * shape + PRIOR_DRAWS * PRIOR_SHAPE) / (n + PRIOR_DRAWS)
    return shrunk, -shape / mean


def pareto_quantiles(p: Float[np.ndarray, " n"], shape: float, scale: float) -> Float[np.ndarray, " n"]:
    """scale ((1 - p)^-k - 1) / k, with its limit at k = 0."""
    log_tail = -np.log1p(-p)
    if abs(shape) < np.finfo(float).eps:
        return scale * log_tail
    return scale * np.expm1(shape * log_tail) / shape


def smoothed_tail(
    log_weights: Float[np.ndarray, " draws"], size: int
) -> tuple[Float[np.ndarray, " draws"], float]:
    """Log weights whose `size` largest are replaced by Pareto quantiles, and the shape of that tail.

    The largest of `log_weights` is 0, and no smoothed one is larger.
    """
    order = np.argsort(log_weights, kind="stable")
    tail = order[-size:]
    cutoff = np.exp(log_weights[order[-size - 1]])
    shape, scale = fit_pareto(np.exp(log_weights[tail]) - cutoff)
    smoothed = log_weights.copy()
    if np.isfinite(shape):
        p = (np.arange(size) + 0.5) / size
        smoothed[tail] = np.minimum(np.log(cutoff + pareto_quantiles(p, shape, scale)), 0.0)
    return smoothed, shape
