"""The contract of a variational family: z = T(e; lambda) with e from a fixed base.

Symbols: e base draw (base_dim,), z point (dim,), lambda the family's arrays, all of them trained.
Every method takes one draw or one point; callers use `jax.vmap`.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from .._checks import whole
from ..bases import AbstractBase

# The product of rows with a symmetric matrix.
Bend = Callable[[Float[Array, "rows dim"]], Float[Array, "rows dim"]]


class AbstractFamily(eqx.Module):
    """A reparametrisable distribution whose density is known."""

    base: eqx.AbstractVar[AbstractBase]

    @classmethod
    @abc.abstractmethod
    def init(cls, dim: int, *, key: Key[Array, ""]) -> "AbstractFamily":
        """A random start, as in the paper's experiments."""

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Length of z."""

    @property
    def base_dim(self) -> int:
        """Length of e; equal to `dim` unless the family says otherwise."""
        return self.dim

    @property
    def dtype(self) -> Any:
        """Floating-point type of the parameters, and so of the draws."""
        return jax.tree.leaves(eqx.filter(self, eqx.is_inexact_array))[0].dtype

    @abc.abstractmethod
    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z = T(e)."""

    @abc.abstractmethod
    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """z = T(e) and log q(z), the latter computed from e (no inverse)."""

    @abc.abstractmethod
    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """z, log q(z) and the path score, grad_z log q(z)."""

    @abc.abstractmethod
    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """log q(z) of one point."""

    def log_prob(self, z: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        """log q(z), for one point or for any batch of points."""
        z = jnp.asarray(z)
        if z.ndim == 0 or z.shape[-1] != self.dim:
            raise ValueError(f"points must have last axis {self.dim}; got shape {z.shape}")
        return jnp.vectorize(self._log_prob, signature="(d)->()")(z)

    def sample(self, key: Key[Array, ""], draws: int = 1) -> Float[Array, "draws dim"]:
        """Independent draws of z."""
        shape = (whole(draws, "draws", least=1), self.base_dim)
        return jax.vmap(self.transport)(self.base.sample(shape, self.dtype, key=key))


class HasEntropy(eqx.Module):
    """A family whose entropy is known in closed form."""

    @abc.abstractmethod
    def entropy(self) -> Float[Array, ""]:
        """-E log q(z), in nats."""


class Invertible(eqx.Module):
    """A family whose transport can be undone."""

    @abc.abstractmethod
    def inverse(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """e with T(e) = z."""


class HasMoments(eqx.Module):
    """A location-scale family: known mean and covariance, and a path with orthogonal rows.

    For z = loc + (scale) e with one parameter per entry of the scale, the Jacobian J = dz/dlambda has
    orthogonal rows, block by block: <J'a, J'b> = sum_i m_i a_i b_i with m from `path_metrics(e)`. That
    gives inner products of per-draw gradients without the gradients.
    """

    loc: eqx.AbstractVar[Float[Array, " dim"]]

    def mean(self) -> Float[Array, " dim"]:
        """E z."""
        return self.loc

    @abc.abstractmethod
    def variance(self) -> Float[Array, " dim"]:
        """The diagonal of Cov z."""

    @abc.abstractmethod
    def covariance_matmul(self, v: Float[Array, "dim k"]) -> Float[Array, "dim k"]:
        """Cov(z) v, without forming the covariance."""

    @abc.abstractmethod
    def covariance_trace(self, bend: Bend, diagonal: Float[Array, " dim"]) -> Float[Array, ""]:
        """tr(B Cov z) for a symmetric B, given by its product with rows and by its diagonal."""

    @abc.abstractmethod
    def path_metrics(self, e: Float[Array, " base"]) -> dict[str, Float[Array, " dim"]]:
        """The diagonal of J J' at the draw e, for each block of parameters by its field's name."""

    def path_metric(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """The diagonal of J J' at the draw e, for all parameters."""
        return sum(self.path_metrics(e).values(), jnp.zeros((), e.dtype))


def quadratic_form(rows: Float[Array, "rows dim"], bend: Bend) -> Float[Array, ""]:
    """sum_k r_k'B r_k. Its gradient is 2 B r_k, for which the product is taken once, not twice more."""

    @jax.custom_jvp
    def value(rows: Float[Array, "rows dim"]) -> Float[Array, ""]:
        return jnp.sum(rows * bend(rows))

    @value.defjvp
    def rule(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:  # pyright: ignore
        (rows,), (moves,) = primals, tangents
        return value(rows), 2 * jnp.sum(moves * bend(rows))

    return value(rows)
