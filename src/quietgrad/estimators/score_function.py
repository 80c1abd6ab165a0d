"""The score-function estimator (REINFORCE): values of the target only, no gradients.

g = E[r(z) grad_lambda log q(z; lambda)] with r = f - log q and z held fixed. It needs no derivative of
the target, and control variates to be of any use.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from .._numerics.lapack import over_points
from .._util.checks import part, whole
from ..families import AbstractFamily, EstimatesDensity, split
from ..scale.sharding import shared_out
from ..targets import Target
from . import samplers
from . import weights as weightings
from .estimator import AbstractEstimator, Cost, Estimate


class AbstractBaseline(eqx.Module):
    """What is subtracted from r before it multiplies the score."""

    @abc.abstractmethod
    def biased(self, *, independent: bool) -> bool:
        """Whether the baseline of a draw can depend on that draw."""

    @abc.abstractmethod
    def __call__(self, value: Float[Array, " draws"]) -> Float[Array, " draws"]:
        """The baseline of each draw."""


class NoBaseline(AbstractBaseline):
    """Nothing is subtracted."""

    def biased(self, *, independent: bool) -> bool:
        """Never."""
        del independent
        return False

    def __call__(self, value: Float[Array, " draws"]) -> Float[Array, " draws"]:
        """Zero."""
        return jnp.zeros_like(value)


class LeaveOneOutBaseline(AbstractBaseline):
    """The mean of r over the other draws."""

    def biased(self, *, independent: bool) -> bool:
        """When the other draws know of this one."""
        return not independent

    def __call__(self, value: Float[Array, " draws"]) -> Float[Array, " draws"]:
        """(sum - own) / (L - 1)."""
        return (jnp.sum(value) - value) / (value.size - 1)


BASELINES: dict[str, type[AbstractBaseline]] = {
    "none": NoBaseline,
    "leave-one-out": LeaveOneOutBaseline,
}


class ScoreState(NamedTuple):
    """State of the sampler."""

    sampler: PyTree


class ScoreFunction(AbstractEstimator):
    """Score-function gradients from `draws` draws with a baseline and draw weights.

    Cost of a step: `draws` values of the target (which need not be differentiable) and one backward
    pass through log q. The leave-one-out baseline and cross-fitted weights are unbiased each, but not
    together: a weight's fit would see its own draw through the others' baselines.
    """

    baseline: AbstractBaseline
    weights: weightings.AbstractWeights
    sampler: samplers.AbstractSampler
    draws: int = eqx.field(static=True)

    def __init__(
        self,
        *,
        baseline: AbstractBaseline | str = "none",
        weights: weightings.AbstractWeights | str = "uniform",
        sampler: samplers.AbstractSampler | str = "iid",
        draws: int = 10,
    ):
        def pick(given: Any, registry: Any, cls: type, kind: str) -> Any:
            return part(given, registry, cls, kind)

        self.baseline = pick(baseline, BASELINES, AbstractBaseline, "baseline")
        self.weights = pick(weights, weightings.REGISTRY, weightings.AbstractWeights, "weights")
        self.sampler = pick(sampler, samplers.REGISTRY, samplers.AbstractSampler, "sampler")
        self.draws = whole(draws, "draws", least=1)

    @property
    def biased(self) -> bool:
        """When a part is, or when baseline and weights meet."""
        independent = self.sampler.independent
        plain = isinstance(self.baseline, NoBaseline) or isinstance(self.weights, weightings.Uniform)
        return (
            not plain
            or self.baseline.biased(independent=independent)
            or self.weights.biased(independent=independent)
        )

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """The first objection that a part has."""
        if target.hyperparameter_count:
            return (
                "the score function takes no gradients of the target, and hyperparameters need them; "
                "use a pathwise estimator such as 'quiet'"
            )
        if isinstance(q, EstimatesDensity):
            return (
                f"the score function differentiates log q, which {type(q).__name__} only estimates; use "
                "'uivi-stein' or 'stl'"
            )
        if isinstance(self.baseline, LeaveOneOutBaseline) and self.draws < 2:
            return f"the leave-one-out baseline needs at least 2 draws; got {self.draws}"
        return self.sampler.refuses(self.draws, q.base, q.base_dim) or self.weights.refuses(
            self.draws, q.base
        )

    def _init(self, target: Target, q: AbstractFamily) -> ScoreState:
        del target
        return ScoreState(self.sampler.init(self.draws, q.base_dim))

    def step(
        self, target: Target, q: AbstractFamily, state: ScoreState, *, key: Key[Array, ""]
    ) -> tuple[Estimate, ScoreState]:
        """Values at the draws, weighted scores in one backward pass."""
        shape = (self.draws, q.base_dim)
        e = shared_out(target, self.sampler.draw(state.sampler, q.base, shape, q.dtype, key=key))
        z = jax.lax.stop_gradient(jax.vmap(q.transport)(e))
        params, rebuild = split(q)
        log_q, vjp = jax.vjp(lambda p: rebuild(p).log_prob(z), params)
        value = over_points(target.log_density, z, shared=target.mesh is not None) - log_q
        w = self.weights(e, q.base)
        (grad,) = vjp(w * (value - self.baseline(value)))
        return Estimate(grad, jnp.sum(w * value), cost=Cost(gradients=0, values=self.draws)), state
