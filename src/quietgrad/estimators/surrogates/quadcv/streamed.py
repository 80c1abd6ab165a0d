"""QuadCV without its slow start: b and B from streaming averages with Stein's identity.

With s = grad log q, any residual r has E[-r s'] = E[dr/dz] (Stein). So for the gradients' residuals
r_l = grad f(z_l) - b - B (z_l - mu), the step B += g sym(mean_l -r_l s_l') closes the fraction g of the
gap to the mean Hessian, whatever the scales of q, and b += g mean_l r_l that to the mean gradient.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ....families import AbstractFamily, HasMoments
from . import model
from .coefficient import AbstractCoefficient, LaggedBeta
from .quadcv import AbstractQuadratic, Quadratic

# Averages over some ten steps, as those behind beta. No quadratic at all misses the gradients by
# themselves, a ratio of one, and a good learner starts there: twice that is no longer chance.
DECAY, WORSE = 0.9, 2.0


class Dense(NamedTuple):
    """The gradient b at z0 and B as a symmetric matrix."""

    linear: Float[Array, " dim"]
    matrix: Float[Array, "dim dim"]

    def matmul(self, offset: Float[Array, "draws dim"]) -> Float[Array, "draws dim"]:
        """B (z - z0)."""
        return offset @ self.matrix

    def matrix_diagonal(self) -> Float[Array, " dim"]:
        """The diagonal of B."""
        return jnp.diagonal(self.matrix)


class Memory(NamedTuple):
    """The mean of q that b belongs to, and the number of steps taken in; zero after starting over.

    `missed` and `seen` are exponential averages of the squared residuals and of the squared gradients.
    """

    center: Float[Array, " dim"]
    steps: Float[Array, ""]
    missed: Float[Array, ""]
    seen: Float[Array, ""]


class StreamedQuadratic(AbstractQuadratic):
    """The quadratic from running averages: learned in tens to hundreds of steps, not thousands.

    Exact for a quadratic integrand, up to an error that shrinks by the fraction g a step. With
    w = 1 + (d + 1) / L, the gain g is 1 / (t + w) at step t, which closes the gap fastest at the start
    and averages the noise after it, and never less than `gain` / w, which follows q as it moves. Costs
    O(L d^2) a step, O(d^3) for a full-rank family, and no target evaluations. Beyond `largest`
    dimensions the quadratic is learned as in `wide`. Unbiased with a lagged beta.

    The error shrinks in the coordinates of q. Where those change by much from step to step (a triangle
    that is nearly singular, few draws, bold steps) it can grow instead, without limit. So a quadratic
    whose residuals are on average `WORSE` times the gradients themselves is dropped, and beta with it.
    """

    # At full strength from the first step, f~ needs no beta above one; heavy tails may suggest it.
    coefficient: AbstractCoefficient = LaggedBeta(bounds=(0.0, 1.0))
    gain: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=0.2)
    largest: int = eqx.field(static=True, default=256)
    wide: Quadratic = eqx.field(default_factory=Quadratic)

    @property
    def elsewhere(self) -> str:
        """QuadCV takes every family."""
        return "the estimator 'quadcv', which estimates them from further draws"

    def start(self, q: AbstractFamily) -> tuple[model.AnyQuadratic, PyTree]:
        """Nothing known, around the present mean."""
        if q.dim > self.largest:
            return self.wide.start(q)
        assert isinstance(q, HasMoments)
        zero = Dense(jnp.zeros(q.dim, q.dtype), jnp.zeros((q.dim, q.dim), q.dtype))
        return zero, Memory(q.mean(), *jnp.zeros((3,), q.dtype))

    def moved(self, v: Any, memory: PyTree, q: HasMoments) -> model.AnyQuadratic:
        """b at the present mean: b + B dmu."""
        if not isinstance(v, Dense):
            return self.wide.moved(v, memory, q)
        return v._replace(linear=v.linear + v.matrix @ (q.mean() - memory.center))

    def learn(
        self,
        v: Any,
        memory: PyTree,
        q: HasMoments,
        e: Float[Array, "draws base"],
        offset: Float[Array, "draws dim"],
        goal: Float[Array, "draws dim"],
    ) -> tuple[model.AnyQuadratic, PyTree]:
        """Close a part of the gaps to the mean gradient and the mean Hessian."""
        if not isinstance(v, Dense):
            return self.wide.learn(v, memory, q, e, offset, goal)
        assert isinstance(q, AbstractFamily)
        draws, dim = offset.shape
        width = 1 + (dim + 1) / draws
        gain = jnp.maximum(1 / (memory.steps + width), self.gain.astype(goal.dtype) / width)
        residual = goal - model.slope(v, offset)
        score = jax.vmap(q.transport_and_score)(e)[2]
        matrix = v.matrix - gain / draws * residual.T @ score
        learned = Dense(v.linear + gain * jnp.mean(residual, axis=0), (matrix + matrix.T) / 2)
        missed = DECAY * memory.missed + (1 - DECAY) * jnp.mean(residual**2)
        seen = DECAY * memory.seen + (1 - DECAY) * jnp.mean(goal**2)
        # Written so that numbers that are not finite count as bad.
        good = missed <= WORSE * seen
        kept, numbers = jax.tree.map(
            lambda x: jnp.where(good, x, 0), (learned, (memory.steps + 1, missed, seen))
        )
        return kept, Memory(q.mean(), *numbers)

    def started_over(self, memory: PyTree) -> Bool[Array, ""] | None:
        """No steps are left in the memory."""
        return memory.steps == 0 if isinstance(memory, Memory) else None
