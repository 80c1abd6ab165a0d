"""QuadCV for location-scale families: the mean of the learned quadratic is known in closed form."""

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from ....families import AbstractFamily, HasMoments
from . import model
from .closed_form import AbstractQuadratic
from .coefficient import AbstractCoefficient, LaggedBeta


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
