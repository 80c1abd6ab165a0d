"""Gradient variance along a run, relative to NoCV with as many draws, from the same draws and rows.

Two ways to the same ratio. The full one runs both estimators in one program, which shares what they have
in common: quickest to run. The light one has small programs, one of them NoCV's for all estimators, and
works out the variances on the host: quickest to compile.
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key, PyTree

from .._util.compiling import SOONER, program
from ..estimators import AbstractEstimator
from ..evaluation.gradient_noise import GROUPS, gradient_variance, variance_ratio
from ..families import AbstractFamily
from ..solvers.steps import strong
from ..targets import Target


class Noise(eqx.Module):
    """How noisy an estimator is; `baseline` is NoCV, or None if that is what the estimator is."""

    target: Target
    estimator: AbstractEstimator
    baseline: AbstractEstimator | None
    repeats: int = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)
    light: bool = eqx.field(static=True)

    def columns(self, q: AbstractFamily, state: PyTree, *, key: Key[Array, ""]) -> dict[str, float]:
        """What a record stores of it; no state is that of the start."""
        if state is None:
            # Made here, not in the program: with a state and without would be two programs.
            state = strong(self.estimator.init(self.target, q))
        if self.light:
            return self._light_columns(q, state, key)
        if self.baseline is None:
            return _plain(float(_variance(self, q, state, key)))
        ratio, error = map(float, _ratio(self, q, state, key))
        return {"variance_ratio": ratio, "variance_ratio_error": error}

    def _light_columns(self, q: AbstractFamily, state: PyTree, key: Key[Array, ""]) -> dict[str, float]:
        key_rows, key_draws = jr.split(key)
        keys = jr.split(key_draws, self.repeats)
        rows = None
        if self.batch_size is not None:
            host = np.random.default_rng(np.asarray(jr.key_data(key_rows)))
            chosen = [host.permutation(self.target.rows)[: self.batch_size] for _ in keys]
            rows = jnp.asarray(np.stack(chosen))
        if self.baseline is None:
            # NoCV has no state; leaving it out makes this the program that the others compare with.
            plain = _gradients(self.target, q, self.estimator, None, rows, keys)
            return _plain(float(np.sum(_deviations(plain)) / self.repeats))
        ours = _deviations(_gradients(self.target, q, self.estimator, state, rows, keys))
        plain = _deviations(_gradients(self.target, q, self.baseline, None, rows, keys))
        ratio, error = _paired_ratio(ours, plain)
        variance = float(np.sum(ours)) / self.repeats
        return {"variance": variance, "variance_ratio": ratio, "variance_ratio_error": error}


def _plain(variance: float) -> dict[str, float]:
    return {"variance": variance, "variance_ratio": 1.0, "variance_ratio_error": 0.0}


def _deviations(gradients: Float[Array, "repeats params"]) -> Float[np.ndarray, " repeats"]:
    """|g_j - mean g|^2 for each gradient."""
    values = np.asarray(gradients, float)
    return np.sum((values - np.mean(values, axis=0)) ** 2, axis=1)


def _paired_ratio(
    ours: Float[np.ndarray, " repeats"], plain: Float[np.ndarray, " repeats"]
) -> tuple[float, float]:
    """The ratio of sums, and its standard error by leaving out one of `GROUPS` groups of pairs."""
    if not np.sum(plain) > 0:
        return math.nan, math.nan
    left = [
        (np.sum(ours) - np.sum(ours[i::GROUPS])) / (np.sum(plain) - np.sum(plain[i::GROUPS]))
        for i in range(GROUPS)
    ]
    return float(np.sum(ours) / np.sum(plain)), math.sqrt((GROUPS - 1) * float(np.var(left)))


def _flat_gradients(
    target: Target,
    q: AbstractFamily,
    estimator: AbstractEstimator,
    state: PyTree,
    rows: Int[Array, "repeats batch"] | None,
    keys: Key[Array, " repeats"],
) -> Float[Array, "repeats params"]:
    state = estimator.init(target, q) if state is None else state

    def gradient(
        chosen: tuple[Int[Array, " batch"] | None, Key[Array, ""]],
    ) -> Float[Array, " params"]:
        its_rows, key = chosen
        view = target if its_rows is None else target.batch(its_rows)
        return ravel_pytree(estimator.step(view, q, state, key=key)[0].grad)[0]

    return jax.lax.map(gradient, (rows, keys))


_gradients = program(_flat_gradients, level=SOONER)


# Compiled as a whole: by themselves, the small steps after the gradients take longer than these.
@program
def _variance(noise: Noise, q: AbstractFamily, state: PyTree, key: Key[Array, ""]) -> Float[Array, ""]:
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


@program
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
