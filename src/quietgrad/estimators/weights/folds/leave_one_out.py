"""Leave-one-out cross-fitting: the coefficients for a draw come from all the others."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..designs import AbstractDesign, GramDesign
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

    def weights(self, design: AbstractDesign, solver: AbstractGramSolver) -> Float[Array, " draws"]:
        """By the solver's own short cut, or by one fit for each draw."""
        if isinstance(solver, HasLeaveOneOut) and isinstance(design, GramDesign):
            # Without a fixed scale every fit has a penalty of its own, for which there is no short cut.
            if design.scale is not None:
                return (1 - solver.leave_one_out(design.gram, design.scale)) / design.draws
        return (1 - leave_each_out(design, solver)) / design.draws


def leave_each_out(design: AbstractDesign, solver: AbstractGramSolver) -> Float[Array, " draws"]:
    """sum_l G_l,-l A(G_-l) by one fit for each draw."""
    draws = design.draws
    kept = jnp.asarray([np.delete(np.arange(draws), out) for out in range(draws)])

    def without(out: Array, kept: Array) -> Float[Array, " draws"]:
        taken = design.taken(solver, kept, out[None])
        return jnp.zeros(draws, taken.dtype).at[kept].add(taken)

    return jnp.sum(jax.vmap(without)(jnp.arange(draws), kept), axis=0)
