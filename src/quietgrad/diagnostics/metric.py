"""The posterior's own scales and correlations, from gradients at q's draws.

For a Gaussian posterior the gradient is linear in z, and least squares of gradients on draws gives its
precision exactly, whatever q is. Otherwise it is an average curvature under q.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .draws import Draws

# Draws for each coordinate that a matrix asks for; with fewer, only a diagonal is estimated.
PER_COORDINATE = 4
# The share of draws with the lowest density that is left out: far out a gradient may be anything.
LEFT_OUT = 0.05
# Bounds of the curvature in units of q's own scales, where it is estimated coordinate by coordinate.
LEAST, MOST = 1e-2, 1e2
# The least curvature where it is a matrix: a density that is flat wherever q draws has none.
FLAT = 1e-12


class Metric(NamedTuple):
    """z = center + root u, in which the posterior is about N(0, I); a diagonal root is a vector."""

    center: Float[np.ndarray, " dim"]
    root: np.ndarray

    @property
    def dense(self) -> bool:
        """Whether correlations are known."""
        return self.root.ndim == 2

    def push(self, u: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, "rows dim"]:
        """root u."""
        return u @ self.root.T if self.dense else u * self.root

    def pull(self, gradient: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, "rows dim"]:
        """root' g: gradients by u."""
        return gradient @ self.root if self.dense else gradient * self.root

    def whiten(self, z: Float[np.ndarray, "rows dim"]) -> Float[np.ndarray, "rows dim"]:
        """u of z."""
        if not self.dense:
            return (z - self.center) / self.root
        return np.linalg.solve(self.root, (z - self.center).T).T

    @property
    def covariance(self) -> Float[np.ndarray, "dim dim"]:
        """root root'."""
        return self.root @ self.root.T if self.dense else np.diag(self.root**2)

    @property
    def std(self) -> Float[np.ndarray, " dim"]:
        """The posterior's scales, as far as its curvature under q tells."""
        return np.sqrt(np.sum(self.root**2, axis=1)) if self.dense else self.root


def metric_of(draws: Draws) -> Metric:
    """The metric of the posterior as gradients at q's draws show it."""
    keep = draws.finite & (draws.values >= np.quantile(draws.values[draws.finite], LEFT_OUT))
    z, slope = draws.z[keep], draws.slope[keep]
    center, std = np.mean(draws.z, axis=0), np.std(draws.z, axis=0)
    std = np.maximum(std, np.finfo(float).tiny)
    count, dim = z.shape
    if count < PER_COORDINATE * dim:
        w = (z - center) / std
        curvature = -np.mean(slope * std * w, axis=0) / np.mean(w**2, axis=0)
        return Metric(center, std / np.sqrt(np.clip(curvature, LEAST, MOST)))
    root = _root(np.cov(draws.z.T).reshape(dim, dim), std)
    w = np.linalg.solve(root, (z - center).T).T
    pulled = slope @ root
    design = np.column_stack([np.ones(count), w])
    fitted, *_ = np.linalg.lstsq(design, pulled, rcond=None)
    residual = pulled - design @ fitted
    values, vectors = np.linalg.eigh(-0.5 * (fitted[1:] + fitted[1:].T))
    # What noise in the fit could make of a curvature of zero.
    noise = np.sqrt(np.mean(residual**2) * dim / count)
    values = np.maximum(values, max(noise, 1e-10 * float(np.max(np.abs(values))), FLAT))
    return Metric(center, root @ (vectors / np.sqrt(values)))


def _root(
    covariance: Float[np.ndarray, "dim dim"], std: Float[np.ndarray, " dim"]
) -> Float[np.ndarray, "dim dim"]:
    """A square root of the covariance of q's draws, by their correlations."""
    correlation = covariance / np.outer(std, std)
    values, vectors = np.linalg.eigh(0.5 * (correlation + correlation.T))
    return std[:, None] * vectors * np.sqrt(np.maximum(values, 1e-14))
