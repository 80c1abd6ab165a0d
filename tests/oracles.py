"""Independent answers to compare with: quadrature, large fixed draws, standard errors and rounding.

Symbols: e base draws, w quadrature weights, R replications, p coordinates of a flattened gradient.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from quietgrad.families import AbstractFamily
from quietgrad.families.bases import AbstractBase
from quietgrad.targets import Target

NODES = 90_000
# Nodes that are evaluated together.
BLOCK = 3000


class Candidate(NamedTuple):
    """Gradient of the ELBO (flattened, the ELBO itself last), and how far off each number may be."""

    value: np.ndarray
    error: np.ndarray


def flat(grad: Any, elbo: Float[Array, ""]) -> Float[Array, " p"]:
    """The coordinates that are compared: the gradient's, then the ELBO."""
    return jnp.append(ravel_pytree(grad)[0], elbo)


def rule(base: AbstractBase, count: int) -> tuple[np.ndarray, np.ndarray]:
    """About `count` nodes and weights for one coordinate: the trapezoid rule in t, e = sinh(t).

    It converges faster than any power of 1/count for smooth integrands, as the square at kinks, and
    reaches far enough for polynomial tails. Nodes that could not matter to 1e-18 are left out.
    """
    wide = np.linspace(-12, 12, 4001)
    reach = np.max(np.abs(wide[_density(base, wide) * np.cosh(wide) ** 2 > 1e-18]))
    t, step = np.linspace(-reach, reach, count, retstep=True)
    return np.sinh(t), _density(base, t) * step


def _density(base: AbstractBase, t: np.ndarray) -> np.ndarray:
    return np.exp(np.asarray(base.log_prob(jnp.asarray(np.sinh(t))))) * np.cosh(t)


def grid(base: AbstractBase, dim: int, nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of the product rule with about `nodes` nodes; weights of zero fill up the last one."""
    e, w = rule(base, round(nodes ** (1 / dim)))
    points = np.stack(np.meshgrid(*[e] * dim, indexing="ij"), axis=-1).reshape(-1, dim)
    weights = functools.reduce(np.multiply.outer, [w] * dim).reshape(-1)
    short = -len(weights) % BLOCK
    points = np.concatenate([points, np.zeros((short, dim))])
    weights = np.concatenate([weights, np.zeros(short)])
    return points.reshape(-1, BLOCK, dim), weights.reshape(-1, BLOCK)


@eqx.filter_jit
def _weighted_elbo(target: Target, q: AbstractFamily, e: Array, w: Array) -> Array:
    """sum_k w_k [f(T(e_k)) - log q(T(e_k))] and its derivative by autodiff, of each block."""

    def value(params: Any, e: Array, w: Array) -> Array:
        z, log_q = jax.vmap(eqx.combine(params, static).transport_and_log_prob)(e)
        return w @ (jax.vmap(target.log_density)(z) - log_q)

    def block(nodes: tuple[Array, Array]) -> Array:
        elbo, grad = jax.value_and_grad(value)(params, *nodes)
        return flat(grad, elbo)

    params, static = eqx.partition(q, eqx.is_inexact_array)
    return jax.lax.map(block, (e, w))


def by_quadrature(target: Target, q: AbstractFamily) -> Candidate:
    """The ELBO and its gradient, off by no more than the change from a grid of half the density.

    Of all coordinates the one that changed most speaks for all: a kink of the integrand hits one
    coordinate and misses another by chance. The sum over the nodes adds its rounding.
    """
    grids = [grid(q.base, q.base_dim, nodes) for nodes in (NODES, NODES // 2**q.base_dim)]
    # The blocks of both in one program, which takes longer to compile than to run.
    e, w = (jnp.asarray(np.concatenate(parts)) for parts in zip(*grids, strict=True))
    sums = np.asarray(_weighted_elbo(target, q, e, w))
    fine, coarse = (np.sum(part, axis=0) for part in np.split(sums, [len(grids[0][1])]))
    rounding = NODES * np.finfo(float).eps * np.maximum(1, np.abs(fine))
    return Candidate(fine, np.max(np.abs(fine - coarse)) + rounding)


@eqx.filter_jit
def _fixed_draws(target: Target, q: AbstractFamily, e: Array) -> Array:
    def value(params: Any, e: Array) -> Array:
        z, log_q = eqx.combine(params, static).transport_and_log_prob(e)
        return target.log_density(z) - log_q

    def one(e: Array) -> Array:
        elbo, grad = jax.value_and_grad(value)(params, e)
        return flat(grad, elbo)

    params, static = eqx.partition(q, eqx.is_inexact_array)
    return jax.lax.map(one, e, batch_size=1000)


def by_fixed_draws(target: Target, q: AbstractFamily, *, draws: int, key: Array) -> Candidate:
    """Autodiff of the ELBO of `draws` fixed draws, with its standard error."""
    terms = _fixed_draws(target, q, q.base.sample((draws, q.base_dim), q.dtype, key=key))
    return Candidate(np.asarray(jnp.mean(terms, axis=0)), standard_error(terms))


def standard_error(samples: Any) -> np.ndarray:
    """Standard error of the mean over the first axis."""
    samples = np.asarray(samples, float)
    return np.std(samples, axis=0, ddof=1) / np.sqrt(len(samples))


def excess(samples: Any, truth: Any, *, error: Any = 0.0, slack: Any = 0.0) -> np.ndarray:
    """|mean - truth| in standard errors, beyond `slack`; `error` is the truth's standard error.

    The absolute floor is what rounding does to the numbers that are averaged: 100 ulp of the largest
    of them, for chains of some tens of operations.
    """
    samples = np.asarray(samples)
    floor = 100 * np.finfo(samples.dtype).eps * np.max(np.abs(samples), axis=0) + slack
    gap = np.abs(np.mean(samples, axis=0, dtype=float) - truth)
    noise = np.hypot(standard_error(samples), error)
    return np.maximum(gap - floor, 0) / np.maximum(noise, np.finfo(float).tiny)


def assert_mean(samples: Any, truth: Any, *, error: Any = 0.0, slack: Any = 0.0) -> None:
    """Fail unless the mean of the samples is `truth`, by a z-test at 5 standard errors."""
    z = np.atleast_1d(excess(samples, truth, error=error, slack=slack))
    worst = np.unravel_index(np.argmax(z), z.shape)
    assert np.all(z <= 5), (
        f"the mean over {len(np.asarray(samples))} replications is {z[worst]:.3g} standard errors off "
        f"at {worst}: {np.atleast_1d(np.mean(samples, axis=0))[worst]} against "
        f"{np.broadcast_to(truth, z.shape)[worst]}"
    )


def assert_same(a: Any, b: Any, *, operations: float, scale: float | None = None) -> None:
    """Fail unless every leaf agrees to `operations` roundings of a number of size `scale`.

    `operations` bounds the additions on the longest path to a number; each rounds once. The factor of
    16 covers what the functions between them (exp, log, solve) amplify.
    """
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype, f"{x.dtype} against {y.dtype}"
        size = max(1.0, float(np.max(np.abs(y), initial=0))) if scale is None else scale
        tolerance = 16 * operations * np.finfo(x.dtype).eps * size
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)


def replicate(function: Callable[[Array], Array], count: int, key: Array) -> np.ndarray:
    """`function` of `count` keys, compiled and vectorised."""
    return np.asarray(jax.jit(jax.vmap(function))(jr.split(key, count)))
