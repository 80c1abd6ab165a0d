"""The contract of a surrogate f~ of the integrand: subtract beta f~ at the draws, add beta E f~ back.

The integrand f is the target's log density, minus log q when the entropy mode sticks the landing:
what the surrogate must follow is the gradient `path.integrand_slope(slope)`.
"""

import abc
import math
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Key, PyTree

from ...families import AbstractFamily
from ...targets import Target
from ..entropy import Path


class Control(NamedTuple):
    """What a surrogate does to one step.

    `slope`: beta grad f~(z_l), taken from the cotangents of the draws (None for nothing). `shift`: what
    is added to the gradient after the pull back, for a scalar beta beta grad_lambda E f~.
    """

    slope: Float[Array, "draws dim"] | None
    shift: PyTree
    beta: PyTree


class AbstractSurrogate(eqx.Module):
    """A function with a known mean that moves with the integrand."""

    @property
    @abc.abstractmethod
    def biased(self) -> bool:
        """Whether the estimate's mean can differ from the gradient."""

    def refuses(self, target: Target, q: AbstractFamily, draws: int) -> str | None:
        """Why this surrogate cannot be used on the pair; None if it can."""
        del target, q, draws
        return None

    def variance_bound(self, q: AbstractFamily) -> float:
        """The most that the variance can be relative to no surrogate, after some steps at this q.

        Infinite where nothing is guaranteed.
        """
        del q
        return math.inf

    def hessian_products(self, q: AbstractFamily, draws: int) -> int:
        """Hessian-vector products of the target that a step takes."""
        del q, draws
        return 0

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
        """The control for draws with target gradients `slope`, and the state for the next step."""
