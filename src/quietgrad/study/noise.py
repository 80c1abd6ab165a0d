"""Gradient variance along a run, relative to NoCV: one compiled program for all its evaluations."""

import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Key, PyTree

from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..gradient_noise import gradient_variance, variance_ratio
from ..targets import Target

# Few optimisations: a third of the compile time. A name that XLA no longer knows is left out.
LIGHT = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


class Noise(eqx.Module):
    """The variance of an estimator over NoCV's with as many draws, from the same draws and rows.

    For NoCV itself, `baseline` is None: the ratio is 1 and its variance is what there is to know.
    """

    target: Target
    estimator: AbstractEstimator
    baseline: AbstractEstimator | None
    repeats: int = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)

    def columns(
        self, q: AbstractFamily, state: PyTree, *, light: bool, key: Key[Array, ""]
    ) -> dict[str, float]:
        """What a record stores of it."""
        program = _program(light=light)
        if self.baseline is None:
            return {
                "variance": float(program(_variance, self, q, state, key)),
                "variance_ratio": 1.0,
                "variance_ratio_error": 0.0,
            }
        ratio, error = program(_ratio, self, q, state, key)
        return {"variance_ratio": float(ratio), "variance_ratio_error": float(error)}


def _variance(noise: Noise, q: AbstractFamily, state: PyTree, key: Key[Array, ""]) -> Array:
    found = gradient_variance(
        noise.target,
        q,
        noise.estimator,
        state=state,
        repeats=noise.repeats,
        batch_size=noise.batch_size,
        key=key,
    )
    return found.total


def _ratio(
    noise: Noise, q: AbstractFamily, state: PyTree, key: Key[Array, ""]
) -> tuple[Array, Array]:
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
    return found.ratio, found.error


@functools.cache
def _program(*, light: bool) -> Callable[..., Any]:
    """Call a function compiled as a whole; without it every small step after it compiles by itself."""

    def call(function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    return eqx.filter_jit(call, compiler_options=_known_options()) if light else eqx.filter_jit(call)


def _known_options() -> dict[str, Any]:
    known = {}
    for name, value in LIGHT.items():
        try:
            jax.jit(lambda x: x + 1, compiler_options={name: value})(1.0)
            known[name] = value
        except Exception:  # noqa: BLE001, S112 - whatever this version of XLA says to it
            continue
    return known
