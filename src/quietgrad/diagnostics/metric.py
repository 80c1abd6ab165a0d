"""The posterior's own scales and correlations, from gradients at q's draws.

For a Gaussian posterior the gradient is linear in z, and least squares of gradients on draws gives its
precision exactly, whatever q is. Otherwise it is an average curvature under q.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from .draws import Draws
from .settings import DEFAULT, Diagnostics


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

    def some(self, chosen: Int[np.ndarray, " some"]) -> "Metric":
        """The scales of some of the coordinates."""
        return Metric(self.center[chosen], self.std[chosen])

    @property
    def covariance(self) -> Float[np.ndarray, "dim dim"]:
        """root root'."""
        return self.root @ self.root.T if self.dense else np.diag(self.root**2)

    @property
    def std(self) -> Float[np.ndarray, " dim"]:
        """The posterior's scales, as far as its curvature under q tells."""
        return np.sqrt(np.sum(self.root**2, axis=1)) if self.dense else self.root


def metric_within(
    draws: Draws, cells: Int[np.ndarray, " draws"], settings: Diagnostics = DEFAULT
) -> Metric:
    """The metric around each of several modes, on average: all about the means of their cell."""
    z, slope = draws.z.copy(), draws.slope.copy()
    center = np.mean(z, axis=0)
    for cell in np.unique(cells):
        rows = cells == cell
        ok = rows & draws.finite
        if not ok.any():
            continue
        z[rows] += center - np.mean(z[rows], axis=0)
        slope[rows] -= np.mean(slope[ok], axis=0)
    return metric_of(draws._replace(z=z, slope=slope), settings)


def metric_of(draws: Draws, settings: Diagnostics = DEFAULT) -> Metric:
    """The metric of the posterior as gradients at q's draws show it."""
    keep = draws.finite & (draws.values >= np.quantile(draws.values[draws.finite], settings.left_out))
    count, dim = int(np.count_nonzero(keep)), draws.z.shape[1]
    if count < settings.per_coordinate * dim:
        return _diagonal(draws, keep, settings)
    z, slope = draws.z[keep], draws.slope[keep]
    center, std = np.mean(draws.z, axis=0), np.std(draws.z, axis=0)
    std = np.maximum(std, np.finfo(float).tiny)
    root = _root(np.cov(draws.z.T).reshape(dim, dim), std)
    w = np.linalg.solve(root, (z - center).T).T
    pulled = slope @ root
    design = np.column_stack([np.ones(count), w])
    fitted, *_ = np.linalg.lstsq(design, pulled, rcond=None)
    residual = pulled - design @ fitted
    values, vectors = np.linalg.eigh(-0.5 * (fitted[1:] + fitted[1:].T))
    # What noise in the fit could make of a curvature of zero.
    noise = np.sqrt(np.mean(residual**2) * dim / count)
    values = np.maximum(values, max(noise, 1e-10 * float(np.max(np.abs(values))), settings.flat))
    return Metric(center, root @ (vectors / np.sqrt(values)))


def _diagonal(draws: Draws, keep: Bool[np.ndarray, " draws"], settings: Diagnostics) -> Metric:
    """Scales alone, coordinate by coordinate."""
    center, root = np.empty(draws.z.shape[1]), np.empty(draws.z.shape[1])
    for some in draws.blocks():
        z, slope = draws.z[:, some], draws.slope[keep, some]
        middle, std = np.mean(z, axis=0), np.maximum(np.std(z, axis=0), np.finfo(float).tiny)
        w = (z[keep] - middle) / std
        curvature = -np.mean(slope * std * w, axis=0) / np.mean(w**2, axis=0)
        bounded = np.clip(curvature, settings.least_curvature, settings.most_curvature)
        center[some], root[some] = middle, std / np.sqrt(bounded)
    return Metric(center, root)


def _root(
    covariance: Float[np.ndarray, "dim dim"], std: Float[np.ndarray, " dim"]
) -> Float[np.ndarray, "dim dim"]:
    """A square root of the covariance of q's draws, by their correlations."""
    correlation = covariance / np.outer(std, std)
    values, vectors = np.linalg.eigh(0.5 * (correlation + correlation.T))
    return std[:, None] * vectors * np.sqrt(np.maximum(values, 1e-14))
