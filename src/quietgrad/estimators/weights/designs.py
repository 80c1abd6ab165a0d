"""What coefficients are fitted with: the Gram matrix of the draws, or the columns themselves.

The Gram matrix is n x n and exists for every kernel; columns are shorter work where they are fewer than
the draws. Either gives what a fit on some draws takes from each of them when it is applied to others.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .solvers import AbstractGramSolver
from .solvers.solver import Scale

# Which draws; a slice stands for all.
Fitted = Int[Array, " fitted"] | Int[np.ndarray, " fitted"] | slice
Applied = Int[Array, " applied"] | Int[np.ndarray, " applied"] | slice


class AbstractDesign(eqx.Module):
    """The draws as a fit sees them: it knows nothing of those that it is applied to but not fitted on.

    So cross-fitting stays unbiased.
    """

    @property
    @abc.abstractmethod
    def draws(self) -> int:
        """How many draws there are."""

    @abc.abstractmethod
    def taken(
        self, solver: AbstractGramSolver, fitted: Fitted, applied: Applied
    ) -> Float[Array, " fitted"]:
        """t with mean_{l in applied} c(x_l)' beta = -t' phi, where beta is fitted at `fitted`."""


class GramDesign(AbstractDesign):
    """Fits solved in the number of draws. A `scale` of None is taken from the draws of each fit."""

    gram: Float[Array, "draws draws"]
    scale: float | None = None

    @property
    def draws(self) -> int:
        """Rows of the Gram matrix."""
        return self.gram.shape[0]

    def taken(
        self, solver: AbstractGramSolver, fitted: Fitted, applied: Applied
    ) -> Float[Array, " fitted"]:
        """The mean row of G_applied,fitted, times A(G_fitted)."""
        gram = self.gram[fitted][:, fitted]
        row = jnp.mean(self.gram[applied][:, fitted], axis=0, keepdims=True)
        scale: Scale = jnp.mean(jnp.diagonal(gram)) if self.scale is None else self.scale
        return solver.apply(gram, row, scale)[0]


class ColumnDesign(AbstractDesign):
    """Fits solved in the number of columns. A `scale` of None is taken from the draws of each fit."""

    columns: Float[Array, "draws columns"]
    scale: float | None = None

    @property
    def draws(self) -> int:
        """Rows of the columns."""
        return self.columns.shape[0]

    def taken(
        self, solver: AbstractGramSolver, fitted: Fitted, applied: Applied
    ) -> Float[Array, " fitted"]:
        """The mean row of C_applied, times C_fitted' A(C_fitted C_fitted')."""
        columns = self.columns[fitted]
        row = jnp.mean(self.columns[applied], axis=0, keepdims=True)
        scale: Scale = jnp.mean(jnp.sum(columns**2, axis=1)) if self.scale is None else self.scale
        return solver.apply_columns(columns, row, scale)[0]
