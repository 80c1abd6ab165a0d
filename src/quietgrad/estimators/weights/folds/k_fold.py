"""k-fold cross-fitting: coefficients for a fold come from the other folds, so they are independent."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..designs import AbstractDesign
from ..solvers import AbstractGramSolver
from .folds import AbstractFolds


class KFold(AbstractFolds):
    """w' = 1'/L - (1/L) sum_k 1_k' G_k,-k A(G_-k). Unbiased for independent draws.

    Folds are consecutive draws: for draws of as many chains as there are folds, one chain after the
    other, coefficients for a chain come from the other chains.
    """

    folds: int = eqx.field(static=True, default=5)

    def __check_init__(self):
        """One fold would leave nothing to fit on."""
        if self.folds < 2:
            raise ValueError(f"folds must be at least 2; got {self.folds}")

    @property
    def biased(self) -> bool:
        """Never, for independent draws."""
        return False

    def refuses(self, draws: int) -> str | None:
        """Every fold needs a draw, and every fit two."""
        if draws >= max(self.folds, 4):
            return None
        least = max(self.folds, 4)
        return f"{self.folds}-fold weights need at least {least} draws; got {draws}"

    def weights(self, design: AbstractDesign, solver: AbstractGramSolver) -> Float[Array, " draws"]:
        """One fit for each fold."""
        every, total = np.arange(design.draws), None
        for held_out in np.array_split(every, self.folds):
            kept = np.setdiff1d(every, held_out)
            taken = len(held_out) * design.taken(solver, kept, held_out)
            total = jnp.zeros(design.draws, taken.dtype) if total is None else total
            total = total.at[kept].add(taken)
        assert total is not None
        return (1 - total) / design.draws
