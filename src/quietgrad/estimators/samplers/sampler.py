"""The contract of a sampler: L draws whose marginals are the base, however they depend on each other."""

import abc
import math
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Key, PyTree

from ...families.bases import AbstractBase


class AbstractSampler(eqx.Module):
    """Makes the draws of a step; each by itself has the base distribution, so means are unbiased."""

    @property
    @abc.abstractmethod
    def independent(self) -> bool:
        """Whether the draws of a step are independent of each other, as cross-fitting needs."""

    def refuses(self, draws: int, base: AbstractBase, dim: int) -> str | None:
        """Why this sampler cannot make `draws` draws of `dim` coordinates; None if it can."""
        del draws, base, dim
        return None

    def variance_bound(self, draws: int) -> float:
        """The most that the variance of the draws' mean can be, relative to independent draws.

        It holds whatever is averaged; infinite where nothing is guaranteed.
        """
        del draws
        return math.inf

    def init(self, draws: int, dim: int) -> PyTree:
        """What is computed once, before the first step."""
        del draws, dim
        return None

    @abc.abstractmethod
    def draw(
        self,
        state: PyTree,
        base: AbstractBase,
        shape: tuple[int, int],
        dtype: Any,
        *,
        key: Key[Array, ""],
    ) -> Float[Array, "draws base"]:
        """`shape[0]` draws of `shape[1]` coordinates."""
