"""The contract of a solver: the coefficients are beta = -C'A phi for a matrix A made from G = C C'.

Fits are solved in the number of draws n, from G, or in the number of columns, from C: the same fit.
"""

import abc

import equinox as eqx
from jaxtyping import Array, Float

# The size of a diagonal entry of G, which penalties are relative to.
Scale = float | Float[Array, ""]


class AbstractGramSolver(eqx.Module):
    """A rule that fits an intercept and coefficients, and is linear in what it is fitted to."""

    @abc.abstractmethod
    def apply(
        self, gram: Float[Array, "n n"], rows: Float[Array, "m n"], scale: Scale
    ) -> Float[Array, "m n"]:
        """rows @ A(gram)."""

    @abc.abstractmethod
    def apply_columns(
        self, columns: Float[Array, "n columns"], rows: Float[Array, "m columns"], scale: Scale
    ) -> Float[Array, "m n"]:
        """rows @ C' A(C C'), which solves for as many unknowns as there are columns.

        With the identity as rows it is minus what turns phi into beta.
        """


class HasLeaveOneOut(eqx.Module):
    """A solver whose fits without each draw in turn come from one factorisation."""

    @abc.abstractmethod
    def leave_one_out(self, gram: Float[Array, "n n"], scale: Scale) -> Float[Array, " n"]:
        """sum_l G_l,-l A(G_-l): what the n leave-one-out predictions take from each draw."""
