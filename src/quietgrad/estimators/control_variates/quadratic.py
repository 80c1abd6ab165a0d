"""QuadCV as an explicit control variate: C = E grad f~ - grad f~ with per-draw gradients."""

from typing import NamedTuple

import equinox as eqx
import jax
import optax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Key

from ...families import AbstractFamily, HasMoments, split
from ...targets import Target
from ..surrogates import Quadratic
from ..surrogates.quadcv import model
from .control_variate import AbstractControlVariate, Sample, pull_each


class LearnedState(NamedTuple):
    """The quadratic and its optimiser's memory."""

    v: model.Coefficients
    memory: optax.OptState


class QuadraticColumn(AbstractControlVariate):
    """One column from the learned quadratic of a location-scale family."""

    surrogate: Quadratic = eqx.field(default_factory=Quadratic)

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """As the surrogate."""
        return self.surrogate.refuses(target, q, 1)

    def init(self, target: Target, q: AbstractFamily) -> LearnedState:
        """The surrogate's start."""
        state = self.surrogate.init(target, q)
        return LearnedState(state.v, state.memory)

    def columns(
        self,
        state: LearnedState,
        target: Target,
        q: AbstractFamily,
        sample: Sample,
        *,
        key: Key[Array, ""],
    ) -> Float[Array, "draws params columns"]:
        """The closed-form mean minus each draw's gradient."""
        del target, key
        params, rebuild = split(q)
        mean = jax.grad(lambda p: model.mean_value(state.v, rebuild(p)))(params)  # pyright: ignore
        own = pull_each(q, sample.e, model.slope(state.v, self._offset(q, sample)))
        return (ravel_pytree(mean)[0][None, :] - own)[:, :, None]

    def update(
        self,
        state: LearnedState,
        target: Target,
        q: AbstractFamily,
        sample: Sample,
        *,
        key: Key[Array, ""],
    ) -> LearnedState:
        """One optimiser step on the quadratic."""
        del target, key
        rule, curvature = optax.adam(self.surrogate.rate), self.surrogate.curvature
        offset = self._offset(q, sample)
        return LearnedState(*model.learn(state.v, state.memory, rule, curvature, offset, sample.slope))

    def _offset(self, q: AbstractFamily, sample: Sample) -> Float[Array, "draws dim"]:
        assert isinstance(q, HasMoments)
        return sample.z - q.mean()[None, :]
