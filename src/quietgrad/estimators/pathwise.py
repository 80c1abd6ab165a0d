"""The pathwise estimator: one pass from draws to gradient, with every axis swappable.

    key -> draw e -> transport z -> target's gradient -> weigh / subtract -> pull back -> gradient

The draws' sampler, their weights, a surrogate of the integrand and the entropy mode are parts; the
paper's estimators and ours are combinations of them.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key, PyTree

from .._numerics.lapack import over_points
from .._util.checks import part, whole
from ..families import AbstractFamily
from ..scale.sharding import shared_out
from ..targets import Target
from . import entropy as entropies
from . import samplers, surrogates
from . import weights as weightings
from .estimator import AbstractEstimator, Cost, Estimate

# Folded into the key for a surrogate's own draws: a count that the step's draws never reach.
SURROGATE = 2**32 - 1


class PathwiseState(NamedTuple):
    """State of the parts that have any."""

    sampler: PyTree
    surrogate: PyTree


class Pathwise(AbstractEstimator):
    """Pathwise (reparametrisation) gradients from `draws` draws, composed of parts.

    Parts are given as instances or by their registered names. Cost of a step: `draws` gradients of the
    target and one backward pass through the transport, plus what the surrogate adds. Biased exactly
    when the weights or the surrogate are.
    """

    sampler: samplers.AbstractSampler
    weights: weightings.AbstractWeights
    surrogate: surrogates.AbstractSurrogate | None
    entropy: entropies.AbstractEntropy
    draws: int = eqx.field(static=True)

    def __init__(
        self,
        *,
        sampler: samplers.AbstractSampler | str = "iid",
        weights: weightings.AbstractWeights | str = "uniform",
        surrogate: surrogates.AbstractSurrogate | str | None = None,
        entropy: entropies.AbstractEntropy | str = "sampled",
        draws: int = 10,
    ):
        def pick(given: Any, parts: Any, cls: type, kind: str) -> Any:
            return part(given, parts.REGISTRY, cls, kind)

        self.sampler = pick(sampler, samplers, samplers.AbstractSampler, "sampler")
        self.weights = pick(weights, weightings, weightings.AbstractWeights, "weights")
        self.entropy = pick(entropy, entropies, entropies.AbstractEntropy, "entropy")
        self.surrogate = (
            None
            if surrogate is None
            else pick(surrogate, surrogates, surrogates.AbstractSurrogate, "surrogate")
        )
        self.draws = whole(draws, "draws", least=1)

    @property
    def title(self) -> str:
        """Its parts and its draws."""
        parts: list[Any] = [self.sampler, self.entropy]
        parts += [] if isinstance(self.weights, weightings.Uniform) else [self.weights]
        parts += [] if self.surrogate is None else [self.surrogate]
        return f"{' + '.join(type(part).__name__ for part in parts)} with {self.draws} draws"

    @property
    def biased(self) -> bool:
        """Whether a part is biased."""
        weighted = self.weights.biased(independent=self.sampler.independent)
        return weighted or (self.surrogate is not None and self.surrogate.biased)

    def variance_bound(self, q: AbstractFamily) -> float:
        """What the sampler guarantees, or the surrogate where draws are independent."""
        uniform = isinstance(self.weights, weightings.Uniform)
        if uniform and self.surrogate is None:
            return self.sampler.variance_bound(self.draws)
        if uniform and self.surrogate is not None and self.sampler.independent:
            return self.surrogate.variance_bound(q)
        return super().variance_bound(q)

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """The first objection that a part has."""
        return (
            self.sampler.refuses(self.draws, q.base, q.base_dim)
            or self.weights.refuses(self.draws, q.base)
            or self.entropy.refuses(q)
            or (self.surrogate and self.surrogate.refuses(target, q, self.draws))
        )

    def _init(self, target: Target, q: AbstractFamily) -> PathwiseState:
        surrogate = self.surrogate and self.surrogate.init(target, q)
        return PathwiseState(self.sampler.init(self.draws, q.base_dim), surrogate)

    def step(
        self, target: Target, q: AbstractFamily, state: PathwiseState, *, key: Key[Array, ""]
    ) -> tuple[Estimate, PathwiseState]:
        """One pass from draws to gradient."""
        shape = (self.draws, q.base_dim)
        e = shared_out(target, self.sampler.draw(state.sampler, q.base, shape, q.dtype, key=key))
        path = self.entropy.path(q, e)
        shared = target.mesh is not None
        value, slope = over_points(jax.value_and_grad(target.log_density), path.z, shared=shared)
        w = self.weights(e, q.base)
        elbo = jnp.sum(w * (value - path.log_q))
        cost = Cost(gradients=self.draws)
        if self.surrogate is None:
            return Estimate(path.pull_back(slope, w), elbo, cost=cost), state
        control, surrogate = self.surrogate.control(
            state.surrogate, target, q, e, path, slope, key=jr.fold_in(key, SURROGATE)
        )
        cotangent = slope if control.slope is None else slope - control.slope
        grad = jax.tree.map(jnp.add, path.pull_back(cotangent, w), control.shift)
        cost = cost._replace(hessian_products=self.surrogate.hessian_products(q, self.draws))
        return Estimate(grad, elbo, control.beta, cost), state._replace(surrogate=surrogate)
