"""QuadCV for location-scale families: the mean of the learned quadratic is known in closed form."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree

from ..entropy import Path
from ..entropy.closed import entropy_of
from ..entropy.mode import over_draws, split
from ..families import AbstractFamily, FullRank, HasEntropy, HasMoments
from ..targets import Target
from . import quadratic_model as model
from .coefficient import (
    AbstractCoefficient,
    Averages,
    LaggedBeta,
    Products,
    dots,
    scale_blocks,
    total,
)
from .surrogate import AbstractSurrogate, Control, integrand_slope


class QuadraticState(NamedTuple):
    """The quadratic, its optimiser's memory, and the averages behind beta."""

    v: model.Coefficients
    memory: optax.OptState
    averages: Averages


class Quadratic(AbstractSurrogate):
    """The learned quadratic with closed-form means (Geffner & Domke 2020).

    Exact once the integrand is quadratic and learned. Costs no target evaluations: O(L d rank) for the
    quadratic and two sums over the draws. beta minimises the expected squared norm with phi the target's
    part plus the mean entropy gradient; a sampled entropy's own noise (low-rank family) is not touched.
    Unbiased with a lagged beta.
    """

    coefficient: AbstractCoefficient = LaggedBeta()
    curvature: model.Curvature = model.Symmetric()
    rank: int | None = eqx.field(static=True, default=None)
    rate: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1e-2)
    seed: int = eqx.field(static=True, default=0)

    @property
    def biased(self) -> bool:
        """When beta is."""
        return self.coefficient.biased

    def refuses(self, target: Target, q: AbstractFamily, draws: int) -> str | None:
        """The mean must be known."""
        del target, draws
        if isinstance(q, HasMoments) and isinstance(q, HasEntropy):
            return None if q.base.variance < float("inf") else "the base has no finite variance"
        return (
            f"{type(q).__name__} has no closed-form mean and covariance; "
            "use the surrogate 'quadratic-flow', which estimates them from further draws"
        )

    def init(self, target: Target, q: AbstractFamily) -> QuadraticState:
        """A small random quadratic; rank 10, or 20 for a full-rank family, as in the earlier code."""
        del target
        rank = (20 if isinstance(q, FullRank) else 10) if self.rank is None else self.rank
        v = model.start(q.dim, min(rank, q.dim), q.dtype, self.seed)
        return QuadraticState(v, self._optimizer().init(v), self.coefficient.init(q))

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
        offset = path.z - q.mean()[None, :]
        ours = model.slope(state.v, offset)
        theirs = integrand_slope(path, slope)
        params, rebuild = split(q)
        mean = jax.grad(lambda p: model.mean_value(state.v, rebuild(p)))(params)  # pyright: ignore
        if self.coefficient.per_block:
            products, pulled = self._block_products(q, e, path, ours, theirs, mean)
            beta = self.coefficient.read(state.averages, products)
            shift = jax.tree.map(jnp.subtract, mean, pulled)
            control = Control(None, scale_blocks(beta, shift), beta)
        else:
            products = self._products(q, e, path, ours, theirs, mean)
            beta = self.coefficient.read(state.averages, products)
            control = Control(beta * ours, scale_blocks(beta, mean), beta)
        v, memory = model.learn(state.v, state.memory, self._optimizer(), self.curvature, offset, theirs)
        return control, QuadraticState(v, memory, self.coefficient.update(state.averages, products))

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.rate)

    def _products(
        self,
        q: AbstractFamily,
        e: Float[Array, "draws base"],
        path: Path,
        ours: Float[Array, "draws dim"],
        theirs: Float[Array, "draws dim"],
        mean: PyTree,
    ) -> Products:
        """E[C'phi] and E[C'C] over the draws, with C_l = m - J_l'g~_l and phi_l = J_l'g_l + h.

        With M = J J' diagonal (the path metric), C'C = |m|^2 + g~.(M g~ - 2 J m) and
        C'phi = m.h + g.(J m - M g~) - g~.J h: two sums over the draws, and no gradient of any draw. h is
        the entropy's mean gradient, zero when sticking the landing.
        """
        assert isinstance(q, HasMoments)
        metric = jax.vmap(q.path_metric)(e)
        along_mean = _response(q, e, mean)
        square = jnp.sum(ours * (metric * ours - 2 * along_mean)) / e.shape[0]
        cross_terms = theirs * (along_mean - metric * ours)
        constant = jnp.zeros((), ours.dtype)
        if path.drift is None:
            entropy = _entropy_gradient(q)
            cross_terms = cross_terms - ours * _response(q, e, entropy)
            constant = total(dots(mean, entropy))
        cross = jnp.sum(cross_terms) / e.shape[0]
        return Products(constant + cross, total(dots(mean, mean)) + square)

    def _block_products(
        self,
        q: AbstractFamily,
        e: Float[Array, "draws base"],
        path: Path,
        ours: Float[Array, "draws dim"],
        theirs: Float[Array, "draws dim"],
        mean: PyTree,
    ) -> tuple[Products, PyTree]:
        """The same for each block of parameters, and the average of J_l'g~_l."""
        assert isinstance(q, HasMoments)
        count = e.shape[0]
        pulled, phi = path.pull_points(ours / count), path.pull_points(theirs / count)
        metrics = jax.vmap(q.path_metrics)(e)
        square = {name: jnp.sum(m * ours * ours) / count for name, m in metrics.items()}
        cross = {name: jnp.sum(m * ours * theirs) / count for name, m in metrics.items()}
        norm, inner = dots(mean, mean), dots(mean, pulled)
        with_entropy = jax.tree.map(jnp.zeros_like, norm)
        if path.drift is None:
            entropy = _entropy_gradient(q)
            phi = jax.tree.map(jnp.add, phi, entropy)
            with_entropy = dots(pulled, entropy)
        products = Products(
            jax.tree.map(lambda a, b, c: a - b - c, dots(mean, phi), _like(q, cross), with_entropy),
            jax.tree.map(lambda a, b, c: a - 2 * b + c, norm, inner, _like(q, square)),
        )
        return products, pulled


def _response(
    q: AbstractFamily, e: Float[Array, "draws base"], direction: PyTree
) -> Float[Array, "draws dim"]:
    """J_l v for each draw: how the points move when the parameters move along v."""
    params, rebuild = split(q)
    return jax.jvp(lambda p: over_draws(rebuild(p).transport, e), (params,), (direction,))[1]


def _entropy_gradient(q: AbstractFamily) -> PyTree:
    params, rebuild = split(q)
    return jax.grad(lambda p: entropy_of(rebuild(p)))(params)


def _like(q: AbstractFamily, blocks: dict[str, Float[Array, ""]]) -> PyTree:
    """Scalars by field name in the shape of the family."""
    names = list(blocks)
    params = eqx.filter(q, eqx.is_inexact_array)
    return eqx.tree_at(lambda p: [getattr(p, n) for n in names], params, list(blocks.values()))
