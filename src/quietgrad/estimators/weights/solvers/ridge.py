"""Ridge regression with a free intercept (South et al. 2022): penalised least squares.

With M = G + mu I, eliminating the intercept gives A = P = M^-1 - M^-1 11' M^-1 / (1' M^-1 1). Taking
draw l away is a rank-one change, P_-l = P - P_:l P_l: / P_ll. From the columns, with H centring,
C'P = (C'HC + mu I)^-1 C'H. Applied to the draws that it was fitted on (in-sample), the weights are
M^-1 1 / (1' M^-1 1): those that minimise w'Mw among all that sum to one.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...._numerics.lapack import solve_positive
from .solver import AbstractGramSolver, HasLeaveOneOut, Scale


class Ridge(AbstractGramSolver, HasLeaveOneOut):
    """Penalty mu = `penalty` x the kernel's scale; the penalty that suits is noise over signal."""

    penalty: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.2)

    def apply(
        self, gram: Float[Array, "n n"], rows: Float[Array, "m n"], scale: Scale
    ) -> Float[Array, "m n"]:
        """Solve for the rows and for the intercept's row of ones together."""
        ones = jnp.ones((1, gram.shape[0]), gram.dtype)
        solved = self._solve(gram, jnp.concatenate([rows, ones]).T, scale).T
        inner, intercept = solved[:-1], solved[-1]
        totals = jnp.sum(inner, axis=1) / jnp.sum(intercept)
        return inner - totals[:, None] * intercept[None, :]

    def apply_columns(
        self, columns: Float[Array, "n columns"], rows: Float[Array, "m columns"], scale: Scale
    ) -> Float[Array, "m n"]:
        """By Cholesky in the number of columns."""
        centred = columns - jnp.mean(columns, axis=0, keepdims=True)
        return self._solve(centred.T @ centred, rows.T, scale).T @ centred.T

    def leave_one_out(self, gram: Float[Array, "n n"], scale: Scale) -> Float[Array, " n"]:
        """From one inverse, by the rank-one change."""
        inverse = self._solve(gram, jnp.eye(gram.shape[0], dtype=gram.dtype), scale)
        border = jnp.sum(inverse, axis=1)
        p = inverse - border[:, None] * border[None, :] / jnp.sum(border)
        product = gram @ p
        share = jnp.diagonal(product) / jnp.diagonal(p)
        return jnp.sum(product, axis=0) - share @ p

    def _solve(
        self, gram: Float[Array, "n n"], right: Float[Array, "n m"], scale: Scale
    ) -> Float[Array, "n m"]:
        penalty = (self.penalty * scale).astype(gram.dtype)
        ridged = gram + penalty * jnp.eye(gram.shape[0], dtype=gram.dtype)
        return solve_positive(ridged, right)
