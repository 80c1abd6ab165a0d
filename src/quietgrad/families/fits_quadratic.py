"""Families that can be fitted to a quadratic on the host: what Newton steps ask of them."""

import abc

import numpy as np
from jaxtyping import Float

from .family import AbstractFamily, HasHostDensity, HasPathMetric


class FitsQuadratic(AbstractFamily, HasPathMetric, HasHostDensity):
    """A location-scale family whose best member for a quadratic log density is known, on the host.

    NumPy in double precision: a fit by curvature calls these a few dozen times, and its linear algebra
    wants more digits than the target's own.
    """

    @property
    def any_covariance(self) -> bool:
        """Whether the family holds every covariance, so that `for_quadratic` is exact."""
        return False

    @abc.abstractmethod
    def for_quadratic(
        self, mean: Float[np.ndarray, " dim"], precision: Float[np.ndarray, "dim dim"]
    ) -> "FitsQuadratic":
        """The member with the highest ELBO on -(z - mean)' precision (z - mean) / 2."""

    def host_root(self) -> Float[np.ndarray, "dim dim"]:
        """A matrix B with BB' = Cov z."""
        covariance = self.host_covariance()
        scale = np.sqrt(np.diagonal(covariance))
        return scale[:, None] * np.linalg.cholesky(covariance / np.outer(scale, scale))

    @abc.abstractmethod
    def host_covariance(self) -> Float[np.ndarray, "dim dim"]:
        """Cov z."""

    @abc.abstractmethod
    def whitened(self, gradient: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " n"]:
        """A vector whose squared length is g' Cov(z) g."""

    @abc.abstractmethod
    def scale_gradient(
        self, e: Float[np.ndarray, "draws base"], slope: Float[np.ndarray, "draws dim"]
    ) -> Float[np.ndarray, " scales"]:
        """The ELBO's gradient by scales, from target gradients at draws, in q's own (Fisher) metric.

        Half its squared length is what a natural-gradient step would gain, in nats.
        """
