"""Fit on the draws that the estimate uses, as the paper does."""

from jaxtyping import Array, Float

from ..designs import AbstractDesign
from ..solvers import AbstractGramSolver
from .folds import AbstractFolds


class InSample(AbstractFolds):
    """w' = 1'/L - (1'G/L) A(G). Biased: the coefficients depend on the draws they multiply."""

    @property
    def biased(self) -> bool:
        """Always."""
        return True

    def weights(self, design: AbstractDesign, solver: AbstractGramSolver) -> Float[Array, " draws"]:
        """One fit, on all draws."""
        every = slice(None)
        return 1 / design.draws - design.taken(solver, every, every)
