"""The contract of a method: a gradient of what it minimises, at each step."""

import abc
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Key, PyTree

from ..problem import EnergyProblem


class StepInfo(NamedTuple):
    """What a step tells: NaN for what a method does not have.

    `gap` is the mean energy of the rows less that of the model's draws, zero where the two agree in
    energy; `accepted` the share of moves; `step_size` that of the chains; `size` the effective number of
    draws by their weights.
    """

    gap: Float[Array, ""]
    accepted: Float[Array, ""]
    step_size: Float[Array, ""]
    size: Float[Array, ""]


class AbstractEnergyMethod(eqx.Module):
    """A way to learn an energy. Holds settings only; what evolves is the state that it hands back."""

    @property
    @abc.abstractmethod
    def biased(self) -> bool:
        """Whether the gradient misses that of the log likelihood, though chains be draws of p."""

    def refuses(self, problem: EnergyProblem) -> str | None:
        """Why the problem cannot be learned like this; None if it can."""
        del problem
        return None

    @abc.abstractmethod
    def init(self, problem: EnergyProblem, params: PyTree, *, key: Key[Array, ""]) -> PyTree:
        """The state before the first step: arrays only."""

    @abc.abstractmethod
    def step(
        self,
        problem: EnergyProblem,
        params: PyTree,
        rows: Float[Array, "batch dim"],
        state: PyTree,
        *,
        key: Key[Array, ""],
    ) -> tuple[PyTree, StepInfo, PyTree]:
        """The gradient (of a loss, to be descended), what there is to tell, and the next state."""

    @abc.abstractmethod
    def draws(self, state: PyTree) -> Float[Array, "chains dim"] | None:
        """Where the chains are, if there are any: a start for samples."""
