"""QuadCV (Geffner & Domke 2020; the paper's Algorithm 1): a step with a quadratic learned on the way.

beta f~ is subtracted at the draws and beta E f~ is added back; then f~ learns from the draws. The mean
is known in closed form for location-scale families (`AbstractQuadratic`), and estimated from further
draws for any other (`QuadraticFlow`). `QuadCV` takes the form that suits the family.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Float, Key, PyTree

from ....families import AbstractFamily, HasEntropy, HasMoments, HasPathMetric, split
from ....targets import Target
from ...entropy import Path, over_draws
from ..surrogate import AbstractSurrogate, Control
from . import model
from .coefficient import (
    AbstractCoefficient,
    Averages,
    LaggedBeta,
    Products,
    block_products,
    dots,
    scale_blocks,
    shared_products,
    total,
)


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
        theirs = path.integrand_slope(slope)
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


class Quadratic(AbstractQuadratic):
    """The quadratic learned by one step of Adam an iteration (Geffner & Domke 2020).

    Exact once the integrand is quadratic and learned, which takes thousands of steps; O(L d rank).
    """

    coefficient: AbstractCoefficient = LaggedBeta()
    curvature: model.Curvature = model.Symmetric()
    rank: int | None = eqx.field(static=True, default=None)
    rate: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1e-2)
    seed: int = eqx.field(static=True, default=0)

    @property
    def elsewhere(self) -> str:
        """Algorithm 1 of the paper."""
        return "the surrogate 'quadratic-flow', which estimates them from further draws"

    def start(self, q: AbstractFamily) -> tuple[model.Coefficients, optax.OptState]:
        """A small random quadratic, by default of the rank that suits the family."""
        rank = q.advice.quadratic_rank if self.rank is None else self.rank
        v = model.start(q.dim, min(rank, q.dim), q.dtype, self.seed)
        return v, optax.adam(self.rate).init(v)

    def learn(
        self,
        v: model.Coefficients,
        memory: optax.OptState,
        q: HasMoments,
        e: Float[Array, "draws base"],
        offset: Float[Array, "draws dim"],
        goal: Float[Array, "draws dim"],
    ) -> tuple[model.Coefficients, optax.OptState]:
        """One step of Adam on the squared error."""
        del q, e
        return model.learn(v, memory, optax.adam(self.rate), self.curvature, offset, goal)


class QuadraticFlow(AbstractSurrogate):
    """The learned quadratic with z0 and E grad f~ estimated from two independent sets of draws.

    Costs 2 x `extra_draws` transports and a backward pass through half of them, and no target
    evaluations. beta minimises the squared norm of the averaged estimate, C being the averaged control
    variate: that counts the noise of the estimated mean, which all draws share. Unbiased with a lagged
    beta.
    """

    coefficient: AbstractCoefficient = LaggedBeta()
    curvature: model.Curvature = model.Symmetric()
    extra_draws: int = eqx.field(static=True, default=100)
    rank: int = eqx.field(static=True, default=10)
    rate: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1e-2)
    seed: int = eqx.field(static=True, default=0)

    @property
    def biased(self) -> bool:
        """When beta is."""
        return self.coefficient.biased

    def init(self, target: Target, q: AbstractFamily) -> QuadraticState:
        """A small random quadratic."""
        del target
        v = model.start(q.dim, min(self.rank, q.dim), q.dtype, self.seed)
        return QuadraticState(v, optax.adam(self.rate).init(v), self.coefficient.init(q))

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
        """Subtract beta f~ at the draws, add its estimated mean; then learn from the draws."""
        del target
        key_center, key_mean = jr.split(key)
        shape = (self.extra_draws, q.base_dim)
        params, rebuild = split(q)
        center = over_draws(q.transport, q.base.sample(shape, q.dtype, key=key_center))
        z0 = jnp.mean(center, axis=0)[None, :]
        more = q.base.sample(shape, q.dtype, key=key_mean)
        points, vjp = jax.vjp(lambda p: over_draws(rebuild(p).transport, more), params)
        (mean,) = vjp(model.slope(state.v, points - z0) / self.extra_draws)

        offset, theirs = path.z - z0, path.integrand_slope(slope)
        ours = model.slope(state.v, offset)
        count = e.shape[0]
        difference = jax.tree.map(jnp.subtract, mean, path.pull_points(ours / count))
        uniform = jnp.full(count, 1 / count, e.dtype)
        phi = path.pull_back(slope, uniform)
        blocks = Products(dots(difference, phi), dots(difference, difference))
        products = blocks if self.coefficient.per_block else Products(*map(total, blocks))
        beta = self.coefficient.read(state.averages, products)
        v, memory = model.learn(
            state.v, state.memory, optax.adam(self.rate), self.curvature, offset, theirs
        )
        averages = self.coefficient.update(state.averages, products)
        shift = scale_blocks(beta, difference)
        return Control(None, shift, beta), QuadraticState(v, memory, averages)


class QuadCV(AbstractSurrogate):
    """`closed` for families that know their path metric, `empirical` (Algorithm 1) for all others."""

    # Made with the surrogate: their rates are arrays, and an import must not start jax's back end.
    closed: Quadratic = eqx.field(default_factory=Quadratic)
    empirical: QuadraticFlow = eqx.field(default_factory=QuadraticFlow)

    @property
    def biased(self) -> bool:
        """When either form is."""
        return self.closed.biased or self.empirical.biased

    def refuses(self, target: Target, q: AbstractFamily, draws: int) -> str | None:
        """What the chosen form objects to."""
        return self._form(q).refuses(target, q, draws)

    def variance_bound(self, q: AbstractFamily) -> float:
        """That of the chosen form."""
        return self._form(q).variance_bound(q)

    def init(self, target: Target, q: AbstractFamily) -> PyTree:
        """The chosen form's state."""
        return self._form(q).init(target, q)

    def control(
        self,
        state: PyTree,
        target: Target,
        q: AbstractFamily,
        e: Float[Array, "draws base"],
        path: Path,
        slope: Float[Array, "draws dim"],
        *,
        key: Key[Array, ""],
    ) -> tuple[Control, PyTree]:
        """The chosen form's control."""
        return self._form(q).control(state, target, q, e, path, slope, key=key)

    def _form(self, q: AbstractFamily) -> AbstractSurrogate:
        return self.closed if isinstance(q, HasPathMetric) else self.empirical
