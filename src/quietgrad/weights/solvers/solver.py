"""The contract of a solver: the coefficients are beta = -C'A phi for a matrix A made from G = C C'."""

import abc

import equinox as eqx
from jaxtyping import Array, Float


class AbstractGramSolver(eqx.Module):
    """A rule that fits an intercept and coefficients, and is linear in what it is fitted to."""

    @abc.abstractmethod
    def apply(
        self, gram: Float[Array, "n n"], rows: Float[Array, "m n"], scale: float
    ) -> Float[Array, "m n"]:
        """rows @ A(gram)."""


class HasLeaveOneOut(eqx.Module):
    """A solver whose fits without each draw in turn come from one factorisation."""

    @abc.abstractmethod
    def leave_one_out(self, gram: Float[Array, "n n"], scale: float) -> Float[Array, " n"]:
        """sum_l G_l,-l A(G_-l): what the n leave-one-out predictions take from each draw."""
