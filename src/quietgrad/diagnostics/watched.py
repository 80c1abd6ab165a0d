"""The numbers whose means and sds are compared: coordinates, and a model's variables on their own scale.

A log sd can be right within its tolerance where the sd itself, which is what the user reads, is not: its
tail is stretched. So what `constrain` gives is watched too, apart from numbers that are coordinates or
constants.
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from .._numerics.lapack import over_points
from .._util.device import on_device
from ..targets import Target
from ..targets.coordinates import coordinate_name
from .chains import Chains

# Points that a call maps, and numbers beyond the coordinates that are watched, small variables first.
AT_ONCE, MOST = 256, 1000


class Watched:
    """Which numbers are watched, what they are called, and their values at points."""

    def __init__(self, target: Target, dtype: Any, z: Float[np.ndarray, "draws dim"]):
        """`z` are draws of q: numbers that never change among them, or are not finite, are left out."""
        self._target, self._dtype = target, dtype
        self.dim = z.shape[1]
        self._names: list[str] = []
        self._taken = np.zeros(0, int)
        if target.model is not None:
            names, values = self._variables(z[:AT_ONCE])
            self._taken = np.flatnonzero(_new(values, z[:AT_ONCE]))[:MOST]
            self._names = [names[i] for i in self._taken]

    def __call__(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, "points numbers"]:
        """The coordinates, then the other numbers."""
        if not self._names:
            return z
        blocks = []
        for first in range(0, len(z), AT_ONCE):
            block = z[first : first + AT_ONCE]
            # Always as many points, so that there is one program.
            padded = np.concatenate([block, np.repeat(block[-1:], AT_ONCE - len(block), axis=0)])
            blocks.append(self._variables(padded)[1][: len(block), self._taken])
        return np.concatenate([z, np.concatenate(blocks)], axis=1)

    def along(self, chains: Chains) -> Chains:
        """The numbers at all states of chains."""
        if not self._names:
            return chains
        states = self(chains.z.reshape(-1, self.dim))
        shape = (*chains.z.shape[:2], states.shape[1])
        return chains._replace(start=self(chains.start), z=states.reshape(shape))

    def name(self, index: int) -> str:
        """What a number is called when speaking to the user."""
        if index < self.dim:
            return coordinate_name(self._target, index)
        return self._names[index - self.dim]

    def _variables(
        self, z: Float[np.ndarray, "points dim"]
    ) -> tuple[list[str], Float[np.ndarray, "points numbers"]]:
        """Every number of every variable, small variables first, by name."""
        found = jax.device_get(_constrain(self._target, on_device(z, self._dtype)))
        ordered = sorted(found.items(), key=lambda item: np.size(item[1]))
        names = [
            f"{name}[{', '.join(map(str, index))}]" if index else name
            for name, values in ordered
            for index in np.ndindex(np.shape(values)[1:])
        ]
        flat = [np.reshape(values, (len(z), -1)).astype(float) for _, values in ordered]
        return names, np.concatenate(flat, axis=1)


def _new(values: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Which columns are finite, change, and are none of the coordinates."""
    with np.errstate(invalid="ignore"):
        fine = np.all(np.isfinite(values), axis=0) & (np.ptp(values, axis=0) > 0)
    known = {column.tobytes() for column in z.T}
    return fine & np.array([column.tobytes() not in known for column in values.T], bool)


@eqx.filter_jit
def _constrain(target: Target, z: Float[Array, "points dim"]) -> dict[str, Array]:
    return over_points(target.constrain, z)
