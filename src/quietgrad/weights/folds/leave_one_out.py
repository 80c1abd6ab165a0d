"""Leave-one-out cross-fitting: the coefficients for a draw come from all the others."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..solvers import AbstractGramSolver, HasLeaveOneOut
from .folds import AbstractFolds


class LeaveOneOut(AbstractFolds):
    """w' = 1'/L - (1/L) sum_l G_l,-l A(G_-l). Unbiased for independent draws."""

    @property
    def biased(self) -> bool:
        """Never, for independent draws."""
        return False

    def refuses(self, draws: int) -> str | None:
        """A fit with intercept on fewer than two draws is none."""
        return None if draws >= 3 else f"leave-one-out weights need at least 3 draws; got {draws}"

    def weights(
        self, gram: Float[Array, "draws draws"], solver: AbstractGramSolver, scale: float
    ) -> Float[Array, " draws"]:
        """By the solver's own short cut, or by one fit for each draw."""
        draws = gram.shape[0]
        if isinstance(solver, HasLeaveOneOut):
            return (1 - solver.leave_one_out(gram, scale)) / draws
        return (1 - leave_each_out(gram, solver, scale)) / draws


def leave_each_out(
    gram: Float[Array, "draws draws"], solver: AbstractGramSolver, scale: float
) -> Float[Array, " draws"]:
    """sum_l G_l,-l A(G_-l) by one fit for each draw."""
    draws = gram.shape[0]
    kept = jnp.asarray([np.delete(np.arange(draws), out) for out in range(draws)])

    def without(out: Array, kept: Array) -> Float[Array, " draws"]:
        fitted = solver.apply(gram[kept][:, kept], gram[out, kept][None, :], scale)[0]
        return jnp.zeros(draws, gram.dtype).at[kept].add(fitted)

    return jnp.sum(jax.vmap(without)(jnp.arange(draws), kept), axis=0)
