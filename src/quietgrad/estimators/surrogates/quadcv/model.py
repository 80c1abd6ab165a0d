"""The learned quadratic of QuadCV (Geffner & Domke 2020): f~(z) = b'(z - z0) + (z - z0)'B(z - z0)/2.

B = exp(s) (diag(D) + sym(U V')), fitted to the gradients of the integrand seen so far. `slope` and
`mean_value` take any quadratic that can multiply an offset by its B.
"""

import abc
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float

from ....families import HasMoments


@runtime_checkable
class AnyQuadratic(Protocol):
    """A gradient b at z0 and a symmetric B, however it is stored."""

    @property
    def linear(self) -> Float[Array, " dim"]:
        """The gradient b at z0."""
        ...

    def matmul(self, offset: Float[Array, "draws dim"]) -> Float[Array, "draws dim"]:
        """B (z - z0)."""
        ...

    def matrix_diagonal(self) -> Float[Array, " dim"]:
        """The diagonal of B."""
        ...


class Coefficients(NamedTuple):
    """The quadratic's parameters v: gradient b at z0, and B in factored form."""

    linear: Float[Array, " dim"]
    diagonal: Float[Array, " dim"]
    factors: Float[Array, "two rank dim"]
    log_scale: Float[Array, ""]

    @property
    def left(self) -> Float[Array, "dim rank"]:
        """U."""
        return self.factors[0].T

    @property
    def right(self) -> Float[Array, "dim rank"]:
        """V."""
        return self.factors[1].T

    def matmul(self, offset: Float[Array, "draws dim"]) -> Float[Array, "draws dim"]:
        """B (z - z0), with the symmetric B."""
        # Faster: U V' + V U' as one product of twice the width, rows along the dimension, and the scale
        # on what is small.
        scale, rows = jnp.exp(self.log_scale), self.factors.reshape(-1, offset.shape[1])
        swapped = jnp.roll(offset @ rows.T, self.factors.shape[1], axis=1)
        return offset * (scale * self.diagonal)[None, :] + (0.5 * scale * swapped) @ rows

    def matrix_diagonal(self) -> Float[Array, " dim"]:
        """exp(s) (D_i + (U V')_ii)."""
        return jnp.exp(self.log_scale) * (
            self.diagonal + jnp.sum(self.factors[0] * self.factors[1], axis=0)
        )


class Curvature(eqx.Module):
    """How B is made from the factors."""

    @abc.abstractmethod
    def fitted(self, v: Coefficients, offset: Float[Array, "draws dim"]) -> Float[Array, "draws dim"]:
        """b + B offset as the fit sees it."""


class Symmetric(Curvature):
    """The fit sees the symmetric B that the control variate uses."""

    def fitted(self, v: Coefficients, offset: Float[Array, "draws dim"]) -> Float[Array, "draws dim"]:
        """b + B offset."""
        return slope(v, offset)


class Unsymmetrised(Curvature):
    """The fit sees diag(D) + U V', as in Geffner & Domke's code: valid, but a worse fit."""

    def fitted(self, v: Coefficients, offset: Float[Array, "draws dim"]) -> Float[Array, "draws dim"]:
        """b + exp(s) (D * offset + U V' offset)."""
        product = offset * v.diagonal[None, :] + (offset @ v.right) @ v.left.T
        return v.linear[None, :] + jnp.exp(v.log_scale) * product


def start(dim: int, rank: int, dtype: Any, seed: int) -> Coefficients:
    """b = 0, s = 1 and small random D, U, V, as in Geffner & Domke's code."""
    diagonal, left, right = jr.split(jr.key(seed), 3)
    return Coefficients(
        linear=jnp.zeros(dim, dtype),
        diagonal=1e-3 * jr.normal(diagonal, (dim,), dtype),
        factors=1e-3 * jnp.stack([jr.normal(key, (dim, rank), dtype).T for key in (left, right)]),
        log_scale=jnp.ones((), dtype),
    )


def slope(v: AnyQuadratic, offset: Float[Array, "draws dim"]) -> Float[Array, "draws dim"]:
    """grad f~ = b + B (z - z0)."""
    return v.linear[None, :] + v.matmul(offset)


def mean_value(v: AnyQuadratic, q: HasMoments) -> Float[Array, ""]:
    """E f~ up to a constant, around z0 = E z held fixed: b'E z + tr(B Cov z) / 2.

    Its gradient is that of E f~, because the term (E z - z0)'B(E z - z0) is flat at z0.
    """
    return v.linear @ q.mean() + 0.5 * q.covariance_trace(v.matmul, v.matrix_diagonal())


def learn(
    v: Coefficients,
    memory: optax.OptState,
    optimizer: optax.GradientTransformation,
    curvature: Curvature,
    offset: Float[Array, "draws dim"],
    goal: Float[Array, "draws dim"],
) -> tuple[Coefficients, optax.OptState]:
    """One optimiser step on mean |b + B (z - z0) - grad f|^2 over the draws just used."""

    def loss(v: Coefficients) -> Float[Array, ""]:
        return jnp.sum((curvature.fitted(v, offset) - goal) ** 2) / offset.shape[0]

    updates, memory = optimizer.update(jax.grad(loss)(v), memory, v)
    return jax.tree.map(jnp.add, v, updates), memory
