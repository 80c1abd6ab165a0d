"""Which draws beta is fitted on: those of the estimate (in-sample), held-out ones, or earlier steps'."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

from .criteria import AbstractCriterion
from .solvers import AbstractSolver, Beta, Columns, FromEquations, NormalEquations, Phi, normal_equations


class AveragedEquations(NamedTuple):
    """Exponential averages of normal equations; `empty` until the first step."""

    equations: NormalEquations
    empty: Bool[Array, ""]


class AbstractSource(eqx.Module):
    """Supplies beta for a step from what its draws may depend on."""

    @property
    @abc.abstractmethod
    def biased(self) -> bool:
        """Whether beta depends on the draws it is applied to."""

    @property
    def extra_sets(self) -> int:
        """Further sets of draws that a step takes for beta."""
        return 0

    def refuses(self, solver: AbstractSolver) -> str | None:
        """Why the solver will not do; None if it will."""
        del solver
        return None

    def init(self, params: int, columns: int, dtype: object, *, shared: bool) -> PyTree:
        """State before the first step."""
        del params, columns, dtype, shared
        return None

    @abc.abstractmethod
    def beta(
        self,
        state: PyTree,
        criterion: AbstractCriterion,
        solver: AbstractSolver,
        sets: list[tuple[Phi, Columns]],
        *,
        shared: bool,
    ) -> tuple[Beta, PyTree]:
        """beta, and the state for the next step. `sets[0]` are the draws of the estimate."""


class InSampleSource(AbstractSource):
    """The draws of the estimate itself: no further cost, and biased."""

    @property
    def biased(self) -> bool:
        """Always."""
        return True

    def beta(
        self,
        state: PyTree,
        criterion: AbstractCriterion,
        solver: AbstractSolver,
        sets: list[tuple[Phi, Columns]],
        *,
        shared: bool,
    ) -> tuple[Beta, PyTree]:
        """Fit on the first set."""
        return solver.solve(criterion, *sets[0], shared=shared), state


class HeldOutSource(AbstractSource):
    """A second set of draws, as large as the first: unbiased at twice the cost."""

    @property
    def biased(self) -> bool:
        """Never."""
        return False

    @property
    def extra_sets(self) -> int:
        """One."""
        return 1

    def beta(
        self,
        state: PyTree,
        criterion: AbstractCriterion,
        solver: AbstractSolver,
        sets: list[tuple[Phi, Columns]],
        *,
        shared: bool,
    ) -> tuple[Beta, PyTree]:
        """Fit on the second set."""
        return solver.solve(criterion, *sets[1], shared=shared), state


class LaggedSource(AbstractSource):
    """Exponential averages of the normal equations of earlier steps: unbiased at no further cost.

    They start at cross = 0 and square = twice its first value (Geffner & Domke 2020).
    """

    decay: float = 0.9

    @property
    def biased(self) -> bool:
        """Never."""
        return False

    def refuses(self, solver: AbstractSolver) -> str | None:
        """Averages can only be solved, not descended on."""
        if isinstance(solver, FromEquations):
            return None
        return "lagged coefficients need the solver 'least-squares' or 'ridge'"

    def init(self, params: int, columns: int, dtype: object, *, shared: bool) -> AveragedEquations:
        """Empty averages."""
        lead = () if shared else (params,)
        square = jnp.zeros((*lead, columns, columns), dtype)  # pyright: ignore[reportArgumentType]
        return AveragedEquations(NormalEquations(square, square[..., 0]), jnp.ones((), bool))

    def beta(
        self,
        state: AveragedEquations,
        criterion: AbstractCriterion,
        solver: AbstractSolver,
        sets: list[tuple[Phi, Columns]],
        *,
        shared: bool,
    ) -> tuple[Beta, AveragedEquations]:
        """Solve the old averages, then take the new draws in."""
        assert isinstance(solver, FromEquations)
        now = normal_equations(criterion, *sets[0], shared=shared)
        beta = jnp.where(state.empty, 0.0, solver.solve_equations(state.equations))
        square = jnp.where(state.empty, 2 * now.square, state.equations.square)
        mixed = jax.tree.map(
            lambda old, new: self.decay * old + (1 - self.decay) * new,
            NormalEquations(square, state.equations.cross),
            now,
        )
        return beta, AveragedEquations(mixed, jnp.zeros((), bool))


SOURCES: dict[str, type[AbstractSource]] = {
    "in-sample": InSampleSource,
    "held-out": HeldOutSource,
    "lagged": LaggedSource,
}
