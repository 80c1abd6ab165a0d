"""Weights of the chains in E_p grad E: equal ones, or Stein weights from the scores at hand."""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..estimators.weights import (
    AbstractFolds,
    AbstractGramSolver,
    AbstractKernel,
    Polynomial,
    stein_weights,
)

# Order 2 where its columns are at most this share of the chains: more of them fit noise.
SHARE = 0.5


class AbstractWeighting(eqx.Module):
    """Weights, summing to one, from the chains' places and the scores there."""

    @property
    @abc.abstractmethod
    def biased(self) -> bool:
        """Whether an expectation under p can be missed although the chains are draws of p."""

    @abc.abstractmethod
    def __call__(
        self, x: Float[Array, "chains dim"], scores: Float[Array, "chains dim"]
    ) -> Float[Array, " chains"]:
        """The weights."""


class UniformWeighting(AbstractWeighting):
    """Equal weights."""

    @property
    def biased(self) -> bool:
        """Never."""
        return False

    def __call__(
        self, x: Float[Array, "chains dim"], scores: Float[Array, "chains dim"]
    ) -> Float[Array, " chains"]:
        """One over the number of chains."""
        del scores
        return jnp.full(x.shape[0], 1 / x.shape[0], x.dtype)


class SteinWeighting(AbstractWeighting):
    """Stein weights, as `stein_weights` has them: exact for a Gaussian energy by order 2.

    `order=None` is 2 where its d (d + 3)/2 columns are at most half of the chains, else 1. In-sample
    weights are biased a little for chains that are draws of p, and take away most of the bias of those
    that are not yet; so are weights in coordinates that come from the chains (`scaling`, None for those
    that suit). Cross-fitted ones with scaling="none" are not. Costs no gradient: chains have the scores.
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

    def __call__(
        self, x: Float[Array, "chains dim"], scores: Float[Array, "chains dim"]
    ) -> Float[Array, " chains"]:
        """In coordinates in which the chains vary by about one."""
        chains, dim = x.shape
        order = self.order
        if order is None:
            second = Polynomial(2).column_count(dim) <= SHARE * chains
            order = 2 if second and self.kernel == "polynomial" else 1
        # Whitening takes a covariance, which few chains do not give.
        scaling = self.scaling or ("whiten" if chains >= 2 * dim else "diagonal")
        return stein_weights(
            x,
            scores,
            kernel=self.kernel,
            order=order,
            solver=self.solver,
            folds=self.folds,
            scaling=scaling,
        )
