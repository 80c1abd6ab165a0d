"""Quantiles of one-dimensional mixtures of normals, by NumPy on the host or by JAX on the device.

t with F(t) = Phi(e), F = sum_k w_k Phi((t - m_k) / s_k). Both sides are taken from the nearer tail, so
that digits are kept however far out e lies. The root lies between the least and the largest of the
components' own quantiles m_k + s_k e.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jaxtyping import Array, Float

# Iterations that are never needed: bisection alone would take as many for all digits of a double.
MOST = 80
ROOT_2PI = math.sqrt(2 * math.pi)


class Search(NamedTuple):
    """A bracket of the root, the place within it, the last two moves, and iterations so far."""

    low: Any
    high: Any
    at: Any
    move: Any
    before: Any
    number: Any


def host_quantile(
    e: Float[np.ndarray, " draws"],
    weights: Float[np.ndarray, "draws k"],
    mean: Float[np.ndarray, "draws k"],
    std: Float[np.ndarray, "draws k"],
) -> Float[np.ndarray, " draws"]:
    """The quantiles of many mixtures, one for each draw.

    Draws for which one component counts are done after a step or two, and no longer asked for.
    """
    own = mean + std * e[:, None]
    low, high = np.min(own, axis=1), np.max(own, axis=1)
    wide, found, left = high - low, np.empty_like(e), np.arange(e.size)
    search = Search(low, high, np.sum(weights * own, axis=1), wide, wide, 0)
    rounding = 4 * np.finfo(float).eps
    with np.errstate(all="ignore"):
        for _ in range(MOST):
            search = _narrowed(np, scipy.special, search, e, weights, mean, std)
            found[left] = search.at
            more = ~(np.abs(search.move) <= rounding * (np.abs(search.at) + wide))
            if not np.any(more):
                break
            left, wide, e, weights, mean, std = (x[more] for x in (left, wide, e, weights, mean, std))
            low, high, at, move, before, number = search
            search = Search(low[more], high[more], at[more], move[more], before[more], number)
    return found


def quantile(
    e: Float[Array, ""],
    weights: Float[Array, " k"],
    mean: Float[Array, " k"],
    std: Float[Array, " k"],
) -> Float[Array, ""]:
    """The quantile of one mixture, differentiable once by all arguments.

    A last Newton step carries the derivatives: dt = (phi(e) de - dF) / f.
    """
    fixed = jax.lax.stop_gradient((e, weights, mean, std))
    at = jax.lax.stop_gradient(_root(*fixed))
    _, gap, density = _gap(jnp, jax.scipy.special, at, e, weights, mean, std)
    density = jax.lax.stop_gradient(density)
    # Where the density underflows nothing is known of the derivatives, and no draw comes there.
    return at - jnp.where(density > 0, gap / jnp.where(density > 0, density, 1), 0)


def _root(
    e: Float[Array, ""],
    weights: Float[Array, " k"],
    mean: Float[Array, " k"],
    std: Float[Array, " k"],
) -> Float[Array, ""]:
    own = mean + std * e
    low, high = jnp.min(own), jnp.max(own)
    rounding = 4 * jnp.finfo(e.dtype).eps

    def unfinished(search: Search) -> Array:
        moving = jnp.abs(search.move) > rounding * (jnp.abs(search.at) + high - low)
        return (search.number < MOST) & moving

    def narrowed(search: Search) -> Search:
        return _narrowed(jnp, jax.scipy.special, search, e, weights, mean, std)

    # More than the bracket, so that components which agree take a step, too.
    wide = high - low + 1
    start = Search(low, high, jnp.sum(weights * own), wide, wide, jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(unfinished, narrowed, start).at


def _narrowed(
    xp: Any, special: Any, search: Search, e: Any, weights: Any, mean: Any, std: Any
) -> Search:
    """One step: Newton's on the normal scale, or halving where that leaves the bracket or is slow."""
    low, high, at, move, before, number = search
    tail, gap, density = _gap(xp, special, at, e, weights, mean, std)
    above = gap > 0
    low, high = xp.where(above, low, at), xp.where(above, at, high)
    # Newton on Phi^-1(F(t)) - e, which is linear in t for one component: its slope is f / phi.
    normal = xp.where(e > 0, -special.ndtri(tail), special.ndtri(tail))
    step = (normal - e) * xp.exp(-0.5 * normal**2) / (ROOT_2PI * density)
    trial = at - step
    good = (trial > low) & (trial < high) & (xp.abs(step) < 0.5 * xp.abs(before))
    new = xp.where(good, trial, 0.5 * (low + high))
    # At the root itself both ends of the bracket move there.
    new = xp.where(gap == 0, at, new)
    return Search(low, high, new, new - at, move, number + 1)


def _gap(
    xp: Any, special: Any, at: Any, e: Any, weights: Any, mean: Any, std: Any
) -> tuple[Any, Any, Any]:
    """F(t) or 1 - F(t), the tail in which e lies; F(t) - Phi(e) by that tail; and the density f(t)."""
    x = (at[..., None] - mean) / std
    sign = xp.where(e > 0, -1.0, 1.0).astype(e.dtype)
    tail = xp.sum(weights * special.ndtr(sign[..., None] * x), axis=-1)
    density = xp.sum(weights * xp.exp(-0.5 * x**2) / std, axis=-1) / ROOT_2PI
    return tail, sign * (tail - special.ndtr(sign * e)), density
