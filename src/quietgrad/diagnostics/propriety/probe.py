"""The log density at points that the host chooses, and whether the model still resolves them."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._util.compiling import ONCE, program
from ..._util.device import on_device
from ...evaluation.metrics import BLOCK
from ...evaluation.points import Points
from ...targets import Target

Values = Callable[[Float[np.ndarray, "points dim"]], Float[np.ndarray, " points"]]
# Points of a call, so that all calls share one program.
AT_ONCE = 32
# The log density and its gradient.
Density = Callable[
    [Float[np.ndarray, "points dim"]],
    tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points dim"]],
]


class LogDensityProbe(NamedTuple):
    """Evaluations of a target's log density, and of its gradient too, in the precision `dtype`."""

    target: Target
    dtype: Any
    values: Values
    density: Density

    def own(self, dim: int) -> int:
        """How many of `dim` coordinates have a density: all but the hyperparameters, which come last."""
        return dim - self.target.hyperparameter_count

    @property
    def digits(self) -> float:
        """The relative rounding error of a number."""
        return float(np.finfo(self.dtype).eps)

    @property
    def has_scale(self) -> bool:
        """Whether the target comes from a model that maps points to a scale of its own."""
        return self.target.model is not None and not self.target.hyperparameter_count

    def resolved(self, z: Float[np.ndarray, "points dim"]) -> Bool[np.ndarray, " points"]:
        """Along a ray, where the model's variables still change from a point to the next.

        Beyond, the transform is saturated: 0, 1, infinity, or clipped just before them. What the density
        does there is arithmetic. If variables change to the end but all of them turn back and forth, the
        map is periodic, as an angle's: nothing on that ray is far from its center, so nothing of it
        counts. One evaluation of the model's map for each point.
        """
        with np.errstate(all="ignore"):
            found = jax.device_get(_constrain(self.target, on_device(z, self.dtype)))
            flat = [np.reshape(values, (len(z), -1)).astype(float) for values in found.values()]
            steps = np.diff(np.concatenate(flat, axis=1), axis=0)
        steps = np.sign(np.where(np.isnan(steps), 0.0, steps))
        last = steps[len(steps) // 2 :]
        # An infinite step is the last one before a variable is infinite.
        returns = np.any(last > 0, axis=0) & np.any(last < 0, axis=0)
        advances = np.any(last != 0, axis=0) & ~returns
        if returns.any() and not advances.any():
            return np.zeros(len(z), bool)
        changed = np.any(steps != 0, axis=1)
        return np.append(changed, changed[-1])


@program(level=ONCE)
def _constrain(target: Target, z: Float[Array, "points dim"]) -> dict[str, Array]:
    return jax.vmap(target.constrain)(z)


def log_density_probe(target: Target, dtype: Any) -> LogDensityProbe:
    """The probe of a target for which no program is there yet."""
    values = functools.partial(log_densities, target, dtype)
    return LogDensityProbe(target, dtype, values, _Later(target, dtype))


@program
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
