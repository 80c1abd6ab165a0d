"""QuadCV for any reparametrisable family (the paper's Algorithm 1): means from further draws."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Key

from ....families import AbstractFamily, split
from ....targets import Target
from ...entropy import Path
from ...entropy.mode import over_draws
from ..surrogate import AbstractSurrogate, Control, integrand_slope
from . import model
from .closed_form import QuadraticState
from .coefficient import AbstractCoefficient, LaggedBeta, Products, dots, scale_blocks, total


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

        offset, theirs = path.z - z0, integrand_slope(path, slope)
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
