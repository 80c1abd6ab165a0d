"""The coefficient beta of a surrogate: minimise the expected squared norm, beta = -E[C'phi] / E[C'C].

C = E grad f~ - grad f~ is the control variate in parameter space (the paper's eqs. 5 and 9).
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ....families import AbstractFamily

FLOOR = 1e-6


class Products(NamedTuple):
    """Estimates of E[C'phi] and E[C'C]: scalars, or one for each block of parameters."""

    cross: PyTree
    square: PyTree


class Averages(NamedTuple):
    """Exponential averages of the products; `empty` until the control variate is not zero."""

    products: Products
    empty: Bool[Array, ""]


class AbstractCoefficient(eqx.Module):
    """A rule for beta; `per_block` gives each array of the family its own."""

    per_block: eqx.AbstractVar[bool]

    @property
    @abc.abstractmethod
    def biased(self) -> bool:
        """Whether beta depends on the draws it is applied to."""

    def init(self, q: AbstractFamily) -> Averages:
        """Averages before the first step."""
        zero = jnp.zeros((), q.dtype)
        params = eqx.filter(q, eqx.is_inexact_array)
        start = jax.tree.map(lambda _: zero, params) if self.per_block else zero
        return Averages(Products(start, start), jnp.ones((), bool))

    @abc.abstractmethod
    def read(self, state: Averages, now: Products) -> PyTree:
        """beta for this step."""

    def update(self, state: Averages, now: Products) -> Averages:
        """Take this step's products into the averages."""
        del now
        return state


class LaggedBeta(AbstractCoefficient):
    """beta from exponential averages of earlier steps, as in Geffner & Domke (2020): unbiased.

    The averages start at E[C'phi] = 0 and E[C'C] = twice its first value, so beta grows from zero; it
    is kept within `bounds`.
    """

    decay: float = 0.9
    per_block: bool = eqx.field(static=True, default=False)
    bounds: tuple[float, float] = (-jnp.inf, jnp.inf)

    @property
    def biased(self) -> bool:
        """Never."""
        return False

    def read(self, state: Averages, now: Products) -> PyTree:
        """Read before the update, so independent of the current draws."""
        del now
        return jax.tree.map(lambda beta: jnp.clip(beta, *self.bounds), _ratio(state.products))

    def update(self, state: Averages, now: Products) -> Averages:
        """Decay the old and add the new."""
        square = jax.tree.map(
            lambda old, new: jnp.where(state.empty, 2 * new, old), state.products.square, now.square
        )
        mixed = jax.tree.map(
            lambda old, new: self.decay * old + (1 - self.decay) * new,
            Products(state.products.cross, square),
            now,
        )
        return Averages(mixed, state.empty & (total(now.square) == 0))


class InSampleBeta(AbstractCoefficient):
    """beta from the current draws: the best fit to them, and biased."""

    per_block: bool = eqx.field(static=True, default=False)

    @property
    def biased(self) -> bool:
        """Always."""
        return True

    def read(self, state: Averages, now: Products) -> PyTree:
        """The ratio of this step's products."""
        del state
        return _ratio(now)


def _ratio(products: Products) -> PyTree:
    return jax.tree.map(lambda cross, square: -cross / (square + FLOOR), *products)


def scale_blocks(beta: PyTree, vector: PyTree) -> PyTree:
    """beta times a parameter-space vector, for a scalar beta or one per block."""
    if isinstance(beta, jax.Array):
        return jax.tree.map(lambda v: beta * v, vector)
    return jax.tree.map(lambda b, v: b * v, beta, vector)


def total(per_block: PyTree) -> Float[Array, ""]:
    """The sum over blocks."""
    return jnp.sum(jnp.stack(jax.tree.leaves(per_block)))


def dots(a: PyTree, b: PyTree) -> PyTree:
    """Inner products block by block."""
    return jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)
