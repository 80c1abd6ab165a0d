"""Weights of points in E_p grad E: equal ones, or Stein weights from the scores at hand.

Points may come with masses, such as those of `Recycled`. Stein weights then are those of a weighted
fit (`weighted_ridge`).
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..estimators.weights import (
    AbstractFolds,
    AbstractGramSolver,
    AbstractKernel,
    Polynomial,
    Ridge,
    stein_weights,
)
from ..estimators.weights.masses import weighted_ridge, weighted_scaling

# Order 2 where its columns are at most this share of the chains: more of them fit noise.
SHARE = 0.5
# The same for all points of the moves, and their penalty. With 2d chains of five moves order 2 has half
# as many columns as points, and from there on a smaller error than order 1 on RBM and ICA. The penalty
# is between those that suit a fitted RBM (0.001 at most) and ICA (0.03), whose gradient is no polynomial
# and whose points on a path are alike (`reproduction/implicit`, gradients).
SHARE_OF_ALL = 0.75
PENALTY_OF_ALL = 0.01


class AbstractWeighting(eqx.Module):
    """Weights, summing to one, from the chains' places and the scores there."""

    @property
    @abc.abstractmethod
    def biased(self) -> bool:
        """Whether an expectation under p can be missed although the chains are draws of p."""

    @abc.abstractmethod
    def __call__(
        self,
        x: Float[Array, "points dim"],
        scores: Float[Array, "points dim"],
        mass: Float[Array, " points"] | None = None,
    ) -> Float[Array, " points"]:
        """The weights, which sum to one as masses do; None for equal masses."""

    def refuses_masses(self) -> str | None:
        """Why points with masses cannot be weighted; None if they can."""
        return None


class UniformWeighting(AbstractWeighting):
    """Equal weights."""

    @property
    def biased(self) -> bool:
        """Never."""
        return False

    def __call__(
        self,
        x: Float[Array, "points dim"],
        scores: Float[Array, "points dim"],
        mass: Float[Array, " points"] | None = None,
    ) -> Float[Array, " points"]:
        """One over the number of points, or the masses."""
        del scores
        return jnp.full(x.shape[0], 1 / x.shape[0], x.dtype) if mass is None else mass


class SteinWeighting(AbstractWeighting):
    """Stein weights, as `stein_weights` has them: exact for a Gaussian energy by order 2.

    `order=None` is 2 where its d (d + 3)/2 columns are at most half of the chains, or three quarters of
    all points of their moves, else 1. `solver=None` is ridge, with a penalty of 0.001, or of 0.01 for
    all points. In-sample weights are biased a little for chains that are draws of p, and take away most
    of the bias of those that are not yet; so are weights in coordinates that come from the chains
    (`scaling`, None for those that suit). Cross-fitted ones with scaling="none" are not. Costs no
    gradient: chains have the scores.
    """

    order: int | None = eqx.field(static=True, default=None)
    kernel: AbstractKernel | str = "polynomial"
    solver: AbstractGramSolver | str | None = None
    folds: AbstractFolds | str = "in-sample"
    scaling: str | None = eqx.field(static=True, default=None)

    @property
    def biased(self) -> bool:
        """Where fits know of the chains that they are applied to."""
        own = self.folds == "in-sample" or getattr(self.folds, "biased", False)
        return own or self.scaling != "none"

    def refuses_masses(self) -> str | None:
        """Fits of their own for folds of points with masses are not worked out."""
        if self.folds == "in-sample" and (self.solver is None or isinstance(self.solver, Ridge)):
            return None
        return (
            "points with masses are weighted in-sample by ridge; got "
            f"folds={self.folds!r}, solver={self.solver!r}. Use recycle=False for these"
        )

    def __call__(
        self,
        x: Float[Array, "points dim"],
        scores: Float[Array, "points dim"],
        mass: Float[Array, " points"] | None = None,
    ) -> Float[Array, " points"]:
        """In coordinates in which the points vary by about one."""
        points, dim = x.shape
        order = self.order
        if order is None:
            share = SHARE if mass is None else SHARE_OF_ALL
            second = Polynomial(2).column_count(dim) <= share * points
            order = 2 if second and self.kernel == "polynomial" else 1
        # Whitening takes a covariance, which few points do not give.
        scaling = self.scaling or ("whiten" if points >= 2 * dim else "diagonal")
        if mass is None:
            return stein_weights(
                x,
                scores,
                kernel=self.kernel,
                order=order,
                solver=self.solver,
                folds=self.folds,
                scaling=scaling,
            )
        kernel = Polynomial(order) if self.kernel == "polynomial" else self.kernel
        solver = Ridge(PENALTY_OF_ALL) if self.solver is None else self.solver
        assert isinstance(kernel, AbstractKernel)
        assert isinstance(solver, Ridge)
        x, scores, mass = jax.lax.stop_gradient((x, scores, mass))
        x, scores = weighted_scaling(x, scores, mass, scaling)
        return weighted_ridge(kernel, x, scores, mass, solver.penalty)
