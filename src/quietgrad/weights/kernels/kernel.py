"""The contract of a Stein kernel."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from ...bases import AbstractBase


class AbstractKernel(eqx.Module):
    """G_ll' = sum_j c_j(e_l) c_j(e_l') for columns c_j with mean zero under the base."""

    @abc.abstractmethod
    def gram(self, e: Float[Array, "draws base"], base: AbstractBase) -> Float[Array, "draws draws"]:
        """The Gram matrix of the draws."""

    @abc.abstractmethod
    def scale(self, dim: int, base: AbstractBase) -> float:
        """The size of a diagonal entry, from dimension and base alone; penalties are relative to it."""

    def refuses(self, base: AbstractBase) -> str | None:
        """Why the columns have no mean zero or no variance under the base; None if they do."""
        del base
        return None
