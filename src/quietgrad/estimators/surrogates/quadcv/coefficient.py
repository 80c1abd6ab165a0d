"""How much of f~ is subtracted: beta = -E[C'phi] / E[C'C], which minimises the expected squared norm.

C = E grad f~ - grad f~ is the control variate in parameter space (the paper's eqs. 5 and 9). Its inner
products with phi and itself need no gradient of any draw where the family has a path metric.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ....families import AbstractFamily, HasPathMetric, split
from ...entropy import Path, entropy_of, over_draws

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


def shared_products(
    q: AbstractFamily,
    e: Float[Array, "draws base"],
    path: Path,
    ours: Float[Array, "draws dim"],
    theirs: Float[Array, "draws dim"],
    mean: PyTree,
) -> Products:
    """E[C'phi] and E[C'C] over the draws, with C_l = m - J_l'g~_l and phi_l = J_l'g_l + h.

    With M = J J' diagonal (the path metric), C'C = |m|^2 + g~.(M g~ - 2 J m) and
    C'phi = m.h + g.(J m - M g~) - g~.J h: two sums over the draws, and no gradient of any draw. h is
    the entropy's mean gradient, zero when sticking the landing.
    """
    assert isinstance(q, HasPathMetric)
    metric = jax.vmap(q.path_metric)(e)
    along_mean = _response(q, e, mean)
    square = jnp.sum(ours * (metric * ours - 2 * along_mean)) / e.shape[0]
    cross_terms = theirs * (along_mean - metric * ours)
    constant = jnp.zeros((), ours.dtype)
    if path.score is None:
        entropy = _entropy_gradient(q)
        cross_terms = cross_terms - ours * _response(q, e, entropy)
        constant = total(dots(mean, entropy))
    cross = jnp.sum(cross_terms) / e.shape[0]
    return Products(constant + cross, total(dots(mean, mean)) + square)


def block_products(
    q: AbstractFamily,
    e: Float[Array, "draws base"],
    path: Path,
    ours: Float[Array, "draws dim"],
    theirs: Float[Array, "draws dim"],
    mean: PyTree,
) -> tuple[Products, PyTree]:
    """The same for each block of parameters, and the average of J_l'g~_l."""
    assert isinstance(q, HasPathMetric)
    count = e.shape[0]
    pulled, phi = path.pull_points(ours / count), path.pull_points(theirs / count)
    metrics = jax.vmap(q.path_metrics)(e)
    square = {name: jnp.sum(m * ours * ours) / count for name, m in metrics.items()}
    cross = {name: jnp.sum(m * ours * theirs) / count for name, m in metrics.items()}
    norm, inner = dots(mean, mean), dots(mean, pulled)
    with_entropy = jax.tree.map(jnp.zeros_like, norm)
    if path.score is None:
        entropy = _entropy_gradient(q)
        phi = jax.tree.map(jnp.add, phi, entropy)
        with_entropy = dots(pulled, entropy)
    products = Products(
        jax.tree.map(lambda a, b, c: a - b - c, dots(mean, phi), _like(q, cross), with_entropy),
        jax.tree.map(lambda a, b, c: a - 2 * b + c, norm, inner, _like(q, square)),
    )
    return products, pulled


def _response(
    q: AbstractFamily, e: Float[Array, "draws base"], direction: PyTree
) -> Float[Array, "draws dim"]:
    """J_l v for each draw: how the points move when the parameters move along v."""
    params, rebuild = split(q)
    return jax.jvp(lambda p: over_draws(rebuild(p).transport, e), (params,), (direction,))[1]


def _entropy_gradient(q: AbstractFamily) -> PyTree:
    params, rebuild = split(q)
    return jax.grad(lambda p: entropy_of(rebuild(p)))(params)


def _like(q: AbstractFamily, blocks: dict[str, Float[Array, ""]]) -> PyTree:
    """Scalars by field name in the shape of the family."""
    names = list(blocks)
    params = eqx.filter(q, eqx.is_inexact_array)
    return eqx.tree_at(lambda p: [getattr(p, n) for n in names], params, list(blocks.values()))
