"""The contract of a Stein kernel."""

import abc

import equinox as eqx
from jaxtyping import Array, Float

from ....families.bases import AbstractBase


class AbstractKernel(eqx.Module):
    """G_ll' = sum_j c_j(x_l) c_j(x_l') for columns c_j with mean zero under the density sampled from.

    All that a kernel needs to know of that density p are its scores, s = grad log p, at the points.
    """

    @abc.abstractmethod
    def gram(
        self, points: Float[Array, "draws dim"], scores: Float[Array, "draws dim"]
    ) -> Float[Array, "draws draws"]:
        """The Gram matrix of points with these scores."""

    def gram_of_base(
        self, e: Float[Array, "draws base"], base: AbstractBase
    ) -> Float[Array, "draws draws"]:
        """The Gram matrix of base draws, whose scores are the base's."""
        return self.gram(e, base.score(e))

    @abc.abstractmethod
    def scale(self, dim: int, base: AbstractBase) -> float:
        """The size of a diagonal entry, from dimension and base alone; penalties are relative to it."""

    def refuses(self, base: AbstractBase) -> str | None:
        """Why the columns have no mean zero or no variance under the base; None if they do."""
        del base
        return None


class HasColumns(eqx.Module):
    """A kernel with finitely many columns: fits can be solved in their number instead of in draws."""

    @abc.abstractmethod
    def column_count(self, dim: int) -> int:
        """How many columns there are."""

    @abc.abstractmethod
    def columns(
        self, points: Float[Array, "draws dim"], scores: Float[Array, "draws dim"]
    ) -> Float[Array, "draws columns"]:
        """The columns whose Gram matrix `gram` gives."""
