"""Ordinary least squares with intercept; the shortest coefficients when there are many solutions."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .solver import AbstractGramSolver


class LeastSquares(AbstractGramSolver):
    """A = (H G H)^+ with H centring: interpolates when there are at least as many columns as draws."""

    def apply(
        self, gram: Float[Array, "n n"], rows: Float[Array, "m n"], scale: float
    ) -> Float[Array, "m n"]:
        """Through the pseudo-inverse of the centred Gram matrix."""
        del scale
        centred = gram - jnp.mean(gram, axis=0, keepdims=True)
        centred = centred - jnp.mean(centred, axis=1, keepdims=True)
        solved = rows @ jnp.linalg.pinv(centred, hermitian=True)
        return solved - jnp.mean(solved, axis=1, keepdims=True)
