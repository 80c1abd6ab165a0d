"""Gradient variance along a run, relative to NoCV with as many draws, from the same draws and rows."""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..gradient_noise import gradient_variance, variance_ratio
from ..targets import Target

# Fewer passes of LLVM: a third less time to compile, and hardly slower.
LIGHT: dict[str, Any] = {"compiler_options": {"xla_backend_optimization_level": 1}}


class Noise(eqx.Module):
    """How noisy an estimator is; `baseline` is NoCV, or None if that is what the estimator is.

    `light` says to compile little. Then estimator and NoCV are separate programs, and all estimators
    share the one of NoCV; the ratio is the same, but its error ignores that both use the same draws
    and so is too large.
    """

    target: Target
    estimator: AbstractEstimator
    baseline: AbstractEstimator | None
    repeats: int = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)
    light: bool = eqx.field(static=True)

    def columns(self, q: AbstractFamily, state: PyTree, *, key: Key[Array, ""]) -> dict[str, float]:
        """What a record stores of it."""
        ratio, error = 1.0, 0.0
        if self.baseline is not None and not self.light:
            ratio, error = map(float, _ratio(self, q, state, key))
            return {"variance_ratio": ratio, "variance_ratio_error": error}
        # NoCV has no state; leaving it out makes this the program that the others compare with.
        state = None if self.baseline is None else state
        variance, its_error = map(float, self._variance(self.estimator, q, state, key))
        if self.baseline is not None:
            plain, plain_error = map(float, self._variance(self.baseline, q, None, key))
            ratio = variance / plain if plain > 0 else math.nan
            error = math.hypot(its_error, ratio * plain_error) / plain if plain > 0 else math.nan
        return {"variance": variance, "variance_ratio": ratio, "variance_ratio_error": error}

    def _variance(
        self, estimator: AbstractEstimator, q: AbstractFamily, state: PyTree, key: Key[Array, ""]
    ) -> Float[Array, "2"]:
        program = _light_variance if self.light else _variance
        return program(self.target, q, estimator, state, self.repeats, self.batch_size, key)


def _total(
    target: Target,
    q: AbstractFamily,
    estimator: AbstractEstimator,
    state: PyTree,
    repeats: int,
    batch_size: int | None,
    key: Key[Array, ""],
) -> Float[Array, "2"]:
    found = gradient_variance(
        target, q, estimator, state=state, repeats=repeats, batch_size=batch_size, key=key
    )
    return jnp.stack([found.total, found.error])


# Compiled as a whole: by themselves, the small steps after the gradients take longer than these.
_variance = eqx.filter_jit(_total)
_light_variance = eqx.filter_jit(_total, **LIGHT)


@eqx.filter_jit
def _ratio(noise: Noise, q: AbstractFamily, state: PyTree, key: Key[Array, ""]) -> Float[Array, "2"]:
    found = variance_ratio(
        noise.target,
        q,
        noise.estimator,
        state=state,
        baseline=noise.baseline,
        repeats=noise.repeats,
        batch_size=noise.batch_size,
        key=key,
    )
    return jnp.stack([found.ratio, found.error])
