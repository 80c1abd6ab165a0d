"""k-fold cross-fitting: coefficients for a fold come from the other folds, so they are independent."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..solvers import AbstractGramSolver
from .folds import AbstractFolds


class KFold(AbstractFolds):
    """w' = 1'/L - (1/L) sum_k 1_k' G_k,-k A(G_-k). Unbiased for independent draws."""

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

    def weights(
        self, gram: Float[Array, "draws draws"], solver: AbstractGramSolver, scale: float
    ) -> Float[Array, " draws"]:
        """One application of the solver for each fold."""
        draws = gram.shape[0]
        total = jnp.zeros(draws, gram.dtype)
        for held_out in np.array_split(np.arange(draws), self.folds):
            kept = np.setdiff1d(np.arange(draws), held_out)
            row = jnp.sum(gram[held_out][:, kept], axis=0, keepdims=True)
            fitted = solver.apply(gram[kept][:, kept], row, scale)[0]
            total = total.at[kept].add(fitted)
        return (1 - total) / draws
