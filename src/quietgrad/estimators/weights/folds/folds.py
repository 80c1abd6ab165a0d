"""The contract of folds."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from ..designs import AbstractDesign
from ..solvers import AbstractGramSolver


class AbstractFolds(eqx.Module):
    """Combines a design and a solver into weights of the draws."""

    @property
    @abc.abstractmethod
    def biased(self) -> bool:
        """Whether coefficients are applied to draws they were fitted on."""

    def refuses(self, draws: int) -> str | None:
        """Why so few draws will not do; None if they will."""
        del draws
        return None

    @abc.abstractmethod
    def weights(self, design: AbstractDesign, solver: AbstractGramSolver) -> Float[Array, " draws"]:
        """w, summing to one."""
