"""QuadCV for location-scale families: the mean of the learned quadratic is known in closed form."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key, PyTree

from ..entropy import Path
from ..entropy.closed import entropy_of
from ..entropy.mode import split
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
    quadratic, and two further pull backs through a location-scale transport. beta minimises the
    expected squared norm with phi the target's part plus the mean entropy gradient; a sampled entropy's
    own noise (low-rank family) is not touched. Unbiased with a lagged beta.
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
        pulled = path.pull_points(ours / e.shape[0])
        products = self._products(q, e, path, ours, theirs, mean, pulled)
        beta = self.coefficient.read(state.averages, products)
        if self.coefficient.per_block:
            shift = jax.tree.map(jnp.subtract, mean, pulled)
            control = Control(None, scale_blocks(beta, shift), beta)
        else:
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
        pulled: PyTree,
    ) -> Products:
        """E[C'phi] and E[C'C] over the draws, with C_l = m - J_l'g~_l and phi_l = J_l'g_l + h.

        The inner products <J'a, J'b> come from the family's path metric, so no per-draw gradient is
        formed. h is the entropy's mean gradient, zero when sticking the landing.
        """
        assert isinstance(q, HasMoments)
        count = e.shape[0]
        params, rebuild = split(q)
        phi = path.pull_points(theirs / count)
        metrics = jax.vmap(q.path_metrics)(e)
        square = {name: jnp.sum(m * ours * ours) / count for name, m in metrics.items()}
        cross = {name: jnp.sum(m * ours * theirs) / count for name, m in metrics.items()}
        norm, inner = dots(mean, mean), dots(mean, pulled)
        if path.drift is None:
            entropy = jax.grad(lambda p: entropy_of(rebuild(p)))(params)
            phi = jax.tree.map(jnp.add, phi, entropy)
            with_entropy = dots(pulled, entropy)
        else:
            with_entropy = jax.tree.map(jnp.zeros_like, norm)
        blocks = Products(
            jax.tree.map(lambda a, b, c: a - b - c, dots(mean, phi), _like(q, cross), with_entropy),
            jax.tree.map(lambda a, b, c: a - 2 * b + c, norm, inner, _like(q, square)),
        )
        return blocks if self.coefficient.per_block else Products(*map(total, blocks))


def _like(q: AbstractFamily, blocks: dict[str, Float[Array, ""]]) -> PyTree:
    """Scalars by field name in the shape of the family."""
    names = list(blocks)
    params = eqx.filter(q, eqx.is_inexact_array)
    return eqx.tree_at(lambda p: [getattr(p, n) for n in names], params, list(blocks.values()))
