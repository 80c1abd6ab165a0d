"""Coordinates in which penalties mean something: points whose coordinates vary by about one.

With x = m + A u the score in u is A's. Polynomials of an order stay polynomials of that order, so that
fits without a penalty are the same in all coordinates; fits with one are not.
"""

from typing import Literal, get_args

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._numerics.lapack import solve_root

Scaling = Literal["none", "diagonal", "whiten"]
SCALINGS: tuple[str, ...] = get_args(Scaling)
# Added to the diagonal of a covariance relative to it, for points that lie on a plane.
JITTER = 1e-6


def scaled(
    points: Float[Array, "draws dim"], scores: Float[Array, "draws dim"], scaling: str
) -> tuple[Float[Array, "draws dim"], Float[Array, "draws dim"]]:
    """Points with their mean at the origin and deviations of one, and the scores of these."""
    if scaling == "none":
        return points, scores
    centred = points - jnp.mean(points, axis=0, keepdims=True)
    std = jnp.sqrt(jnp.mean(centred**2, axis=0, keepdims=True))
    # A coordinate that never moved stays as it is.
    std = jnp.where(std > 0, std, 1)
    points, scores = centred / std, scores * std
    if scaling == "diagonal":
        return points, scores
    dim = points.shape[1]
    correlation = points.T @ points / points.shape[0] + JITTER * jnp.eye(dim, dtype=points.dtype)
    factor, white = jnp.split(solve_root(correlation, points.T), [dim], axis=1)
    return white.T, scores @ factor
