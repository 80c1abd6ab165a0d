"""An answer on the way: when it was there, after how many steps, and how to draw from it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr

Draw = Callable[[Any, int], tuple[jax.Array, jax.Array]]


class Snapshot(NamedTuple):
    """`seconds` since the user's call; `draw(key, count)` gives points and their log density."""

    seconds: float
    steps: int
    draw: Draw


def diagonal(mean: Any, std: Any) -> Draw:
    """Draws of a Gaussian with independent coordinates."""
    mean, std = jnp.asarray(mean), jnp.asarray(std)

    def draw(key: Any, count: int) -> tuple[jax.Array, jax.Array]:
        e = jr.normal(key, (count, mean.size), mean.dtype)
        log_e = -0.5 * jnp.sum(e**2 + jnp.log(2 * jnp.pi), axis=1)
        return mean[None] + std[None] * e, log_e - jnp.sum(jnp.log(std))

    return draw


def triangular(mean: Any, root: Any) -> Draw:
    """Draws of a Gaussian with covariance root root', for a lower triangular root."""
    mean, root = jnp.asarray(mean), jnp.asarray(root)

    def draw(key: Any, count: int) -> tuple[jax.Array, jax.Array]:
        e = jr.normal(key, (count, mean.size), mean.dtype)
        log_e = -0.5 * jnp.sum(e**2 + jnp.log(2 * jnp.pi), axis=1)
        return mean[None] + e @ root.T, log_e - jnp.sum(jnp.log(jnp.abs(jnp.diagonal(root))))

    return draw


def low_rank(mean: Any, factor: Any, variances: Any) -> Draw:
    """Draws of a Gaussian with covariance diag(variances) + factor factor'."""
    factor, variances = jnp.asarray(factor), jnp.asarray(variances)
    root = jnp.linalg.cholesky(jnp.diag(variances) + factor @ factor.T)
    # Lost digits show here first, and would look like a bad fit.
    if not bool(jnp.all(jnp.isfinite(root))):
        raise FloatingPointError("the covariance of this answer has no Cholesky factor")
    return triangular(mean, root)
