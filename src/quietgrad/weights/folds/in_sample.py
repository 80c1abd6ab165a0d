"""Fit on the draws that the estimate uses, as the paper does."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..solvers import AbstractGramSolver
from .folds import AbstractFolds


class InSample(AbstractFolds):
    """w' = 1'/L - (1'G/L) A(G). Biased: the coefficients depend on the draws they multiply."""

    @property
    def biased(self) -> bool:
        """Always."""
        return True

    def weights(
        self, gram: Float[Array, "draws draws"], solver: AbstractGramSolver, scale: float
    ) -> Float[Array, " draws"]:
        """One application of the solver to the mean row."""
        mean_row = jnp.mean(gram, axis=0, keepdims=True)
        return 1 / gram.shape[0] - solver.apply(gram, mean_row, scale)[0]
