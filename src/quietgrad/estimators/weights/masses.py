"""Stein weights for points that have masses, such as importance weights or those of Metropolis' rule.

With masses v that sum to one, u = sqrt(v) and the Gram matrix G of the columns, the weights are

    w = u y / u'y,    (uu' G + mu I) y = u.

A point without mass has no weight, and equal masses give the weights of `stein_weights`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._numerics.lapack import solve_positive, solve_root
from .kernels import AbstractKernel, HasColumns
from .scaling import JITTER


def weighted_scaling(
    x: Float[Array, "points dim"],
    scores: Float[Array, "points dim"],
    mass: Float[Array, " points"],
    scaling: str,
) -> tuple[Float[Array, "points dim"], Float[Array, "points dim"]]:
    """Coordinates as `stein_weights` has them, by moments under the masses."""
    if scaling == "none":
        return x, scores
    x = x - mass[None, :] @ x
    std = jnp.sqrt(mass[None, :] @ x**2)
    std = jnp.where(std > 0, std, 1)
    x, scores = x / std, scores * std
    if scaling == "diagonal":
        return x, scores
    dim = x.shape[1]
    correlation = x.T @ (mass[:, None] * x) + JITTER * jnp.eye(dim, dtype=x.dtype)
    factor, white = jnp.split(solve_root(correlation, x.T), [dim], axis=1)
    return white.T, scores @ factor


def weighted_ridge(
    kernel: AbstractKernel,
    x: Float[Array, "points dim"],
    scores: Float[Array, "points dim"],
    mass: Float[Array, " points"],
    penalty: Float[Array, ""],
) -> Float[Array, " points"]:
    """In-sample ridge weights for points with masses, in the smaller of points and columns.

    From the columns C with c = C'v and S = C'VC - cc', w = v (1 - (C - 1c') (S + mu I)^-1 c). The
    penalty is relative to the mean diagonal of G, and to the effective number of points.
    """
    points, dim = x.shape
    size = jnp.sum(mass**2)
    if isinstance(kernel, HasColumns) and kernel.column_count(dim) < points:
        columns = kernel.columns(x, scores)
        mean = mass @ columns
        centred = columns - mean[None, :]
        mu = penalty * size * (mass @ jnp.sum(columns**2, axis=1))
        inner = centred.T @ (mass[:, None] * centred)
        inner = inner + mu.astype(x.dtype) * jnp.eye(len(mean), dtype=x.dtype)
        return mass * (1 - centred @ solve_positive(inner, mean[:, None])[:, 0])
    root = jnp.sqrt(mass)
    gram = kernel.gram(x, scores)
    mu = penalty * size * (mass @ jnp.diagonal(gram))
    gram = root[:, None] * gram * root[None, :] + mu.astype(x.dtype) * jnp.eye(points, dtype=x.dtype)
    w = root * solve_positive(gram, root[:, None])[:, 0]
    return w / jnp.sum(w)
