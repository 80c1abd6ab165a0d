"""Coordinates in which the posterior is about a standard normal, for samplers: those of a fitted q.

Base coordinates: z = T(e). With e ~ q_0 and weights p(T(e)) / q(T(e)), T(e) has the density p, so that
  log pi(e) = f(T(e)) - log q(T(e)) + log q_0(e)
is a density of e whose image is the posterior: f(T(e)) + log|det J| where T can be inverted, and right
too where e has more coordinates than z. Where q is the posterior, pi is the base.
Matrix coordinates: z = m + R u, with R from gradients at q's draws (`metric.py`).
"""

import abc
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._util.device import on_device
from ..families import AbstractFamily, HasMoments
from ..targets import Target
from .draws import Draws
from .metric import Metric


class AbstractCoordinates(eqx.Module):
    """A map from coordinates u to points z, and the log density of u whose image is the posterior."""

    target: eqx.AbstractVar[Target]

    @property
    @abc.abstractmethod
    def dtype(self) -> Any:
        """Floating-point type of u and z."""

    def in_type_of(self, u: Float[Array, " base"]) -> Float[Array, ""]:
        """The log density in the floating-point type of u, which a sampler may need to be jax's own."""
        return self.log_density(u.astype(self.dtype)).astype(u.dtype)

    @abc.abstractmethod
    def point(self, u: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z of u."""

    @abc.abstractmethod
    def log_density(self, u: Float[Array, " base"]) -> Float[Array, ""]:
        """Up to a constant."""

    @abc.abstractmethod
    def of_draws(self, draws: Draws, rows: Int[np.ndarray, " rows"]) -> Float[Array, "rows base"]:
        """u of some draws of q."""


class BaseCoordinates(AbstractCoordinates):
    """The base draws of a family: of a flow, a mixture, or of globals and locals given them."""

    target: Target
    q: AbstractFamily

    @property
    def dtype(self) -> Any:
        """That of q."""
        return self.q.dtype

    def point(self, u: Float[Array, " base"]) -> Float[Array, " dim"]:
        """T(u)."""
        return self.q.transport(u)

    def log_density(self, u: Float[Array, " base"]) -> Float[Array, ""]:
        """f(T(u)) - log q(T(u)) + log q_0(u)."""
        z, log_q = self.q.transport_and_log_prob(u)
        return self.target.log_density(z) - log_q + jnp.sum(self.q.base.log_prob(u))

    def of_draws(self, draws: Draws, rows: Int[np.ndarray, " rows"]) -> Float[Array, "rows base"]:
        """They have been kept."""
        return on_device(draws.e[rows], self.q.dtype)


class MatrixCoordinates(AbstractCoordinates):
    """u = R^-1 (z - m)."""

    target: Target
    center: Float[Array, " dim"]
    root: Float[Array, "dim dim"]

    @classmethod
    def of(cls, target: Target, metric: Metric, q: AbstractFamily) -> "MatrixCoordinates":
        """Those of a dense metric, in the precision of q."""
        return cls(target, on_device(metric.center, q.dtype), on_device(metric.root, q.dtype))

    @property
    def dtype(self) -> Any:
        """That of the matrix."""
        return self.root.dtype

    def point(self, u: Float[Array, " base"]) -> Float[Array, " dim"]:
        """m + R u."""
        return self.center + self.root @ u

    def log_density(self, u: Float[Array, " base"]) -> Float[Array, ""]:
        """f(z); the determinant is a constant."""
        return self.target.log_density(self.point(u))

    def of_draws(self, draws: Draws, rows: Int[np.ndarray, " rows"]) -> Float[Array, "rows base"]:
        """By a linear system."""
        moved = (draws.z[rows] - np.asarray(self.center, float)).T
        u = np.linalg.solve(np.asarray(self.root, float), moved).T
        return on_device(u, self.center.dtype)


def coordinates_of(target: Target, q: AbstractFamily, metric: Metric) -> AbstractCoordinates:
    """A matrix for a Gaussian where correlations are known; else q's base.

    The matrix has correlations that a mean-field q lacks. A family that bends has more than a matrix.
    """
    if not (isinstance(q, HasMoments) and metric.dense):
        return BaseCoordinates(target, q)
    return MatrixCoordinates.of(target, metric, q)
