"""The contract of a sampler: all chains are warmed up, then advanced by blocks of moves."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Key

from ...diagnostics.coordinates import AbstractCoordinates


class Moves(NamedTuple):
    """States after each move, whether it diverged, its gradients, and the acceptance it averaged."""

    u: Float[Array, "moves chains base"]
    diverging: Bool[Array, "moves chains"]
    gradients: Int[Array, "moves chains"]
    acceptance: Float[Array, "moves chains"]


class AbstractEngine(eqx.Module):
    """Frozen; states are pytrees. Programs take the coordinates, and so the data, as arguments."""

    # Acceptance that the step is adapted to, and doublings of a trajectory: the samplers' own defaults
    # are 0.8 and 10; a shorter step costs a third more gradients and keeps clear of divergences.
    acceptance: float = 0.9
    doublings: int = 10
    # Coordinates up to which the mass matrix is dense; a matrix costs dim^2 a step, and needs draws.
    dense: int = 50

    @abc.abstractmethod
    def warm(
        self,
        coordinates: AbstractCoordinates,
        start: Float[Array, "chains base"],
        moves: int,
        *,
        key: Key[Array, ""],
    ) -> Any:
        """The state of all chains after so many moves that adapt step and mass matrix."""

    @abc.abstractmethod
    def advance(self, coordinates: AbstractCoordinates, state: Any, moves: int) -> tuple[Any, Moves]:
        """So many moves of all chains."""
