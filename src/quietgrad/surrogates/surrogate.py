"""The contract of a surrogate f~ of the integrand: subtract beta f~ at the draws, add beta E f~ back."""

import abc
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Key, PyTree

from ..entropy import Path
from ..families import AbstractFamily
from ..targets import Target


class Control(NamedTuple):
    """What a surrogate does to one step.

    `slope` is beta grad f~(z_l), taken from the cotangents of the draws; `mean` is beta times the
    gradient with respect to lambda of E f~, added after the pull back.
    """

    slope: Float[Array, "draws dim"]
    mean: PyTree
    beta: Float[Array, "..."]


class AbstractSurrogate(eqx.Module):
    """A function with a known mean that moves with the integrand."""

    @property
    @abc.abstractmethod
    def biased(self) -> bool:
        """Whether the estimate's mean can differ from the gradient."""

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """Why this surrogate cannot be used on the pair; None if it can."""
        del target, q
        return None

    @abc.abstractmethod
    def init(self, target: Target, q: AbstractFamily) -> PyTree:
        """State before the first step."""

    @abc.abstractmethod
    def control(
        self,
        state: PyTree,
        target: Target,
        q: AbstractFamily,
        e: Float[Array, "draws base"],
        path: Path,
        slope: Float[Array, "draws dim"],
        *,
        key: Key[Array, ""],
    ) -> tuple[Control, PyTree]:
        """The control for draws with integrand gradients `slope`, and the state for the next step."""
