"""A learned quadratic for location-scale families: its mean is known, however it is learned.

A subclass says how the quadratic starts and how it takes in the draws of a step.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from ....families import AbstractFamily, HasEntropy, HasMoments, HasPathMetric, split
from ....targets import Target
from ...entropy import Path
from ..surrogate import AbstractSurrogate, Control, integrand_slope
from . import model
from .coefficient import AbstractCoefficient, Averages, scale_blocks
from .products import block_products, shared_products


class QuadraticState(NamedTuple):
    """The quadratic, its learner's memory, and the averages behind beta."""

    v: Any
    memory: PyTree
    averages: Averages


class AbstractQuadratic(AbstractSurrogate):
    """Subtract beta f~ at the draws, add its closed-form mean, then learn from the draws.

    Costs two sums over the draws beside the quadratic itself, and no target evaluations. beta minimises
    the expected squared norm with phi the target's part plus the mean entropy gradient; a sampled
    entropy's own noise (low-rank family) is not touched. Unbiased with a lagged beta. Once the averages
    behind beta have settled, the variance is not above that without a surrogate, which is beta = 0.
    """

    coefficient: eqx.AbstractVar[AbstractCoefficient]

    @property
    def biased(self) -> bool:
        """When beta is."""
        return self.coefficient.biased

    def variance_bound(self, q: AbstractFamily) -> float:
        """One: without a surrogate beta would be zero, and beta minimises the squared norm."""
        del q
        return 1.0

    @property
    @abc.abstractmethod
    def elsewhere(self) -> str:
        """What to use for families without closed-form moments."""

    @abc.abstractmethod
    def start(self, q: AbstractFamily) -> tuple[model.AnyQuadratic, PyTree]:
        """The quadratic before the first step, and the learner's memory."""

    def moved(self, v: Any, memory: PyTree, q: HasMoments) -> model.AnyQuadratic:
        """The quadratic around the present mean of q; b is kept unless the learner says otherwise."""
        del memory, q
        return v

    @abc.abstractmethod
    def learn(
        self,
        v: Any,
        memory: PyTree,
        q: HasMoments,
        e: Float[Array, "draws base"],
        offset: Float[Array, "draws dim"],
        goal: Float[Array, "draws dim"],
    ) -> tuple[model.AnyQuadratic, PyTree]:
        """Take in the integrand's gradients `goal` at the draws, `offset` from the mean of q."""

    def started_over(self, memory: PyTree) -> Bool[Array, ""] | None:
        """Whether the learner has just dropped what it knew, and beta with it; None if it never does."""
        del memory
        return None

    def refuses(self, target: Target, q: AbstractFamily, draws: int) -> str | None:
        """The mean must be known, and inner products of gradients."""
        del target, draws
        if isinstance(q, HasPathMetric) and isinstance(q, HasEntropy):
            return None if q.base.variance < float("inf") else "the base has no finite variance"
        missing = "path metric" if isinstance(q, HasMoments) else "mean and covariance"
        return f"{type(q).__name__} has no closed-form {missing}; use {self.elsewhere}"

    def init(self, target: Target, q: AbstractFamily) -> QuadraticState:
        """The learner's start, and no averages."""
        del target
        return QuadraticState(*self.start(q), self.coefficient.init(q))

    def control(
        self,
        state: QuadraticState,
        target: Target,
        q: AbstractFamily,
        e: Float[Array, "draws base"],
        path: Path,
        slope: Float[Array, "draws dim"],
        *,
        key: Key[Array, ""],
    ) -> tuple[Control, QuadraticState]:
        """Subtract beta f~ at the draws, add its mean; then learn from the draws."""
        del target, key
        assert isinstance(q, HasMoments)
        v = self.moved(state.v, state.memory, q)
        offset = path.z - q.mean()[None, :]
        ours = model.slope(v, offset)
        theirs = integrand_slope(path, slope)
        params, rebuild = split(q)
        mean = jax.grad(lambda p: model.mean_value(v, rebuild(p)))(params)  # pyright: ignore
        if self.coefficient.per_block:
            products, pulled = block_products(q, e, path, ours, theirs, mean)
            beta = self.coefficient.read(state.averages, products)
            shift = jax.tree.map(jnp.subtract, mean, pulled)
            control = Control(None, scale_blocks(beta, shift), beta)
        else:
            products = shared_products(q, e, path, ours, theirs, mean)
            beta = self.coefficient.read(state.averages, products)
            control = Control(beta * ours, scale_blocks(beta, mean), beta)
        v, memory = self.learn(v, state.memory, q, e, offset, theirs)
        averages = self.coefficient.update(state.averages, products)
        over = self.started_over(memory)
        if over is not None:
            fresh = self.coefficient.init(q)
            averages = jax.tree.map(lambda new, old: jnp.where(over, new, old), fresh, averages)
        return control, QuadraticState(v, memory, averages)
