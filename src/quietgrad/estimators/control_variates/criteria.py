"""What the coefficients minimise: the paper's three empirical forms of Var[phi + C beta].

Each is a constant times sum_l |residual_l|^2 of what it calls the residual, so each gives normal
equations; the first two have the same minimiser but weigh a penalty differently.
"""

import abc

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float


class AbstractCriterion(eqx.Module):
    """A quadratic function of the adjusted gradients phi + C beta."""

    @property
    @abc.abstractmethod
    def intercept(self) -> bool:
        """Whether an intercept alpha is fitted beside beta."""

    @abc.abstractmethod
    def residual(self, x: Float[Array, "draws ..."]) -> Float[Array, "draws ..."]:
        """What of the adjusted gradients is squared, once alpha is at its best."""

    @abc.abstractmethod
    def weight(self, draws: int) -> float:
        """The constant in front of the sum of squares."""

    def objective(self, adjusted: Float[Array, "draws params"]) -> Float[Array, ""]:
        """The criterion's value."""
        return self.weight(adjusted.shape[0]) * jnp.sum(self.residual(adjusted) ** 2)


class PairwiseVariance(AbstractCriterion):
    """1/(L(L-1)) sum_{l>l'} |x_l - x_l'|^2 (Belomestny et al. 2018).

    The double sum equals L sum_l |x_l - mean x|^2, which is how it is computed.
    """

    @property
    def intercept(self) -> bool:
        """Differences have none."""
        return False

    def residual(self, x: Float[Array, "draws ..."]) -> Float[Array, "draws ..."]:
        """Deviations from the mean."""
        return x - jnp.mean(x, axis=0, keepdims=True)

    def weight(self, draws: int) -> float:
        """1/(L - 1)."""
        return 1 / (draws - 1)


class EmpiricalVariance(AbstractCriterion):
    """1/L sum_l |x_l - mean x|^2: least squares with an intercept (Si et al. 2022; the paper)."""

    @property
    def intercept(self) -> bool:
        """alpha stands for the unknown mean."""
        return True

    def residual(self, x: Float[Array, "draws ..."]) -> Float[Array, "draws ..."]:
        """Deviations from the mean."""
        return x - jnp.mean(x, axis=0, keepdims=True)

    def weight(self, draws: int) -> float:
        """1/L."""
        return 1 / draws


class SquaredNorm(AbstractCriterion):
    """1/L sum_l |x_l|^2 (Geffner & Domke 2018), which uses that C has mean zero."""

    @property
    def intercept(self) -> bool:
        """None is needed."""
        return False

    def residual(self, x: Float[Array, "draws ..."]) -> Float[Array, "draws ..."]:
        """The adjusted gradients themselves."""
        return x

    def weight(self, draws: int) -> float:
        """1/L."""
        return 1 / draws


CRITERIA: dict[str, type[AbstractCriterion]] = {
    "pairwise": PairwiseVariance,
    "variance": EmpiricalVariance,
    "squared-norm": SquaredNorm,
}
