"""The log density at points that the host chose, to look at a target with when something is wrong."""

import functools
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from .._util.device import on_device
from ..diagnostics.propriety import LogDensityProbe
from ..evaluation.metrics import BLOCK
from ..evaluation.points import Points
from ..targets import Target

# Points of a call, so that all calls share one program.
AT_ONCE = 32


def log_density_probe(target: Target, dtype: Any) -> LogDensityProbe:
    """The probe of a target for which no program is there yet."""
    values = functools.partial(log_densities, target, dtype)
    return LogDensityProbe(target, dtype, values, _Later(target, dtype))


@eqx.filter_jit
def _on_device(target: Target, z: Float[Array, "points dim"]) -> Float[Array, " points"]:
    return jax.lax.map(target.log_density, z)


def log_densities(target: Target, dtype: Any, z: Float[np.ndarray, "points dim"]) -> np.ndarray:
    """The log density at points that the host chose, not too many numbers at once."""
    block = max(1, min(AT_ONCE, BLOCK // z.shape[1]))
    parts = []
    for first in range(0, len(z), block):
        some = z[first : first + block]
        padded = np.concatenate([some, np.repeat(z[-1:], block - len(some), axis=0)])
        parts.append(np.asarray(_on_device(target, on_device(padded, dtype)), float))
    return np.concatenate(parts)[: len(z)]


class _Later:
    """The log density and its gradient, by a program that is made when it is first asked for."""

    def __init__(self, target: Target, dtype: Any):
        self._target, self._dtype = target, dtype

    def __call__(
        self, z: Float[np.ndarray, "points dim"]
    ) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points dim"]]:
        """NaN where JAX cannot differentiate the target: nothing is known there."""
        try:
            return self._points(z)
        except (TypeError, ValueError, NotImplementedError):
            return log_densities(self._target, self._dtype, z), np.full(z.shape, np.nan)

    @functools.cached_property
    def _points(self) -> Points:
        return Points(self._target, self._dtype)
