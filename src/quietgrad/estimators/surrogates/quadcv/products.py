"""Inner products behind beta for a quadratic with a known mean, without gradients of any draw."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ....families import AbstractFamily, HasPathMetric, split
from ...entropy import Path
from ...entropy.closed import entropy_of
from ...entropy.mode import over_draws
from .coefficient import Products, dots, total


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
