"""The contract of draw weights, w from the draws alone and summing to one; and equal weights."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...families.bases import AbstractBase


class AbstractWeights(eqx.Module):
    """Turns base draws into weights w; the gradient estimate is sum_l w_l phi_l."""

    @abc.abstractmethod
    def biased(self, *, independent: bool) -> bool:
        """Whether E sum_l w_l phi_l can differ from E phi, for draws that are independent or not."""

    def refuses(self, draws: int, base: AbstractBase) -> str | None:
        """Why these weights cannot be made; None if they can."""
        del draws, base
        return None

    @abc.abstractmethod
    def __call__(self, e: Float[Array, "draws base"], base: AbstractBase) -> Float[Array, " draws"]:
        """The weights of the draws."""


class Uniform(AbstractWeights):
    """w_l = 1/L."""

    def biased(self, *, independent: bool) -> bool:
        """Never."""
        del independent
        return False

    def __call__(self, e: Float[Array, "draws base"], base: AbstractBase) -> Float[Array, " draws"]:
        """1/L for each draw."""
        del base
        return jnp.full(e.shape[0], 1 / e.shape[0], e.dtype)
