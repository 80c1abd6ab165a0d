"""Ordinary least squares with intercept; the shortest coefficients when there are many solutions."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...._numerics.lapack import pseudo_inverse
from .solver import AbstractGramSolver, Scale


class LeastSquares(AbstractGramSolver):
    """A = (H G H)^+ with H centring: interpolates when there are at least as many columns as draws."""

    def apply(
        self, gram: Float[Array, "n n"], rows: Float[Array, "m n"], scale: Scale
    ) -> Float[Array, "m n"]:
        """Through the pseudo-inverse of the centred Gram matrix."""
        del scale
        centred = gram - jnp.mean(gram, axis=0, keepdims=True)
        centred = centred - jnp.mean(centred, axis=1, keepdims=True)
        solved = rows @ pseudo_inverse(centred, hermitian=True)
        return solved - jnp.mean(solved, axis=1, keepdims=True)

    def apply_columns(
        self, columns: Float[Array, "n columns"], rows: Float[Array, "m columns"], scale: Scale
    ) -> Float[Array, "m n"]:
        """Through the pseudo-inverse of the centred columns, whose condition is not squared."""
        del scale
        centred = columns - jnp.mean(columns, axis=0, keepdims=True)
        # Below what rounding makes of a zero, as NumPy has it; JAX's own limit is ten times that, which
        # in single precision would drop directions that are there.
        limit = max(centred.shape) * jnp.finfo(centred.dtype).eps
        return rows @ pseudo_inverse(centred, rtol=float(limit))
