"""Explicit control variates, the literal and slow form: `Pathwise` has the one-pass forms.

The paper's sections 2 and 3 as they are written, with per-draw gradients, columns and coefficients.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Key, PyTree

from .._util.checks import part, whole
from ..families import AbstractFamily, split
from ..scale.sharding import shared_out
from ..targets import Target
from . import control_variates as explicit
from . import entropy as entropies
from . import samplers
from .control_variates.control_variate import take_sample
from .control_variates.solvers import apply
from .estimator import AbstractEstimator, Cost, Estimate

# Data for `fold_in` that no counter of a draw reaches.
OTHERS = 2**32 - 2


class ControlledState(NamedTuple):
    """State of the parts."""

    sampler: PyTree
    control_variate: PyTree
    source: PyTree


class Controlled(AbstractEstimator):
    """h = mean_l [phi_l + C(e_l) beta] with explicit per-draw gradients (draws x params).

    For research and as an oracle, not for speed: what has a one-pass form is a surrogate or a weighting
    of `Pathwise`. `source` says which draws beta is fitted on, in-sample, held-out or lagged.
    `per_dimension` gives every parameter its own coefficients (the paper's section 3.1). Cost of a step:
    `draws` gradients of the target (twice that with held-out draws), a backward pass for each draw and
    (draws x params x columns) numbers. Biased exactly when beta is fitted in-sample.
    """

    control_variate: explicit.AbstractControlVariate
    criterion: explicit.AbstractCriterion
    solver: explicit.AbstractSolver
    source: explicit.AbstractSource
    sampler: samplers.AbstractSampler
    entropy: entropies.AbstractEntropy
    per_dimension: bool = eqx.field(static=True)
    draws: int = eqx.field(static=True)

    def __init__(
        self,
        control_variate: explicit.AbstractControlVariate | str,
        *,
        criterion: explicit.AbstractCriterion | str = "variance",
        solver: explicit.AbstractSolver | str = "least-squares",
        source: explicit.AbstractSource | str = "in-sample",
        per_dimension: bool = False,
        sampler: samplers.AbstractSampler | str = "iid",
        entropy: entropies.AbstractEntropy | str = "sampled",
        draws: int = 10,
    ):
        def pick(given: Any, registry: Any, cls: type, kind: str) -> Any:
            return part(given, registry, cls, kind)

        cls = explicit.AbstractControlVariate
        self.control_variate = pick(control_variate, explicit.REGISTRY, cls, "control variate")
        self.criterion = pick(criterion, explicit.CRITERIA, explicit.AbstractCriterion, "criterion")
        self.solver = pick(solver, explicit.SOLVERS, explicit.AbstractSolver, "solver")
        self.source = pick(source, explicit.SOURCES, explicit.AbstractSource, "source")
        self.sampler = pick(sampler, samplers.REGISTRY, samplers.AbstractSampler, "sampler")
        self.entropy = pick(entropy, entropies.REGISTRY, entropies.AbstractEntropy, "entropy")
        self.per_dimension = per_dimension
        self.draws = whole(draws, "draws", least=2)

    @property
    def biased(self) -> bool:
        """When beta is fitted in-sample."""
        return self.source.biased

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """The first objection that a part has."""
        return (
            self.sampler.refuses(self.draws, q.base, q.base_dim)
            or self.entropy.refuses(q)
            or self.source.refuses(self.solver)
            or self.control_variate.refuses(target, q)
        )

    def _init(self, target: Target, q: AbstractFamily) -> ControlledState:
        state = self.control_variate.init(target, q)
        phi, columns = jax.eval_shape(
            lambda s: self._draw(target, q, self.sampler.init(self.draws, q.base_dim), s, jr.key(0))[1:],
            state,
        )
        source = self.source.init(
            phi.shape[1], columns.shape[2], phi.dtype, shared=not self.per_dimension
        )
        return ControlledState(self.sampler.init(self.draws, q.base_dim), state, source)

    def step(
        self, target: Target, q: AbstractFamily, state: ControlledState, *, key: Key[Array, ""]
    ) -> tuple[Estimate, ControlledState]:
        """Draw, fit beta, adjust."""
        # The first set is drawn with `key` itself, as in `Pathwise`: equal keys mean equal draws there,
        # which is what pairs the two in a variance ratio.
        *more, key_update = jr.split(jr.fold_in(key, OTHERS), 1 + self.source.extra_sets)
        draws = [self._draw(target, q, state.sampler, state.control_variate, k) for k in (key, *more)]
        shared = not self.per_dimension
        sets = [(phi, columns) for _, phi, columns in draws]
        beta, source = self.source.beta(state.source, self.criterion, self.solver, sets, shared=shared)
        sample, phi, columns = draws[0]
        adjusted = phi + apply(columns, beta)
        learned = self.control_variate.update(state.control_variate, target, q, sample, key=key_update)
        restore = ravel_pytree(split(q)[0])[1]
        products = self.control_variate.hessian_products(q) * len(draws)
        cost = Cost(gradients=self.draws * len(draws), hessian_products=products)
        estimate = Estimate(restore(jnp.mean(adjusted, axis=0)), jnp.mean(sample.value), beta, cost)
        return estimate, ControlledState(state.sampler, learned, source)

    def _draw(
        self, target: Target, q: AbstractFamily, sampler: PyTree, state: PyTree, key: Key[Array, ""]
    ) -> tuple[explicit.Sample, Array, Array]:
        shape = (self.draws, q.base_dim)
        e = shared_out(target, self.sampler.draw(sampler, q.base, shape, q.dtype, key=key))
        sample = take_sample(target, q, self.entropy, e)
        columns = self.control_variate.columns(state, target, q, sample, key=jr.fold_in(key, 1))
        return sample, sample.phi, columns
