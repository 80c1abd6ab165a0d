"""The numbers whose means and sds are compared: coordinates, and a model's variables on their own scale.

A log sd can be right within its tolerance where the sd itself, which is what the user reads, is not: its
tail is stretched. So what `constrain` gives is watched too, apart from numbers that are coordinates or
constants. Of very many coordinates, some are watched: those most strongly coupled to others, and a
random sample.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from .._numerics.lapack import over_points
from .._util.compiling import SOONER, program
from .._util.device import on_device
from ..targets import Target
from ..targets.target import coordinate_name
from .chains import Chains
from .draws import Draws
from .settings import DEFAULT, Diagnostics

# Points that a call maps: always as many, so that there is one program.
AT_ONCE = 256


class Watched:
    """Which numbers are watched, what they are called, and their values at points.

    `coordinates` are the numbers of the coordinates that are watched, those most strongly coupled first
    if they are a selection, and `dim` how many these are.
    """

    def __init__(
        self,
        target: Target,
        dtype: Any,
        draws: Draws,
        rng: np.random.Generator,
        settings: Diagnostics = DEFAULT,
    ):
        """Variables that never change among the draws, or are not finite, are left out."""
        self._target, self._dtype = target, dtype
        z = draws.z
        self.whole = z.shape[1]
        few = self.whole <= min(settings.shape_coordinates, settings.most_coordinates)
        self.coupled = np.arange(self.whole) if few else coupled(draws)
        self.coordinates = np.arange(self.whole)
        if self.whole > settings.most_coordinates:
            half = settings.most_coordinates // 2
            rest = rng.permutation(self.coupled[half:])[: settings.most_coordinates - half]
            self.coordinates = np.concatenate([self.coupled[:half], rest])
        self.dim = self.coordinates.size
        self._names: list[str] = []
        self._taken = np.zeros(0, int)
        if target.model is not None:
            names, values = self._variables(z[:AT_ONCE])
            fresh = np.flatnonzero(_new(values, z[:AT_ONCE]))
            self._taken = fresh[: settings.most_variables]
            self._names = [names(int(i)) for i in self._taken]

    @property
    def selected(self) -> bool:
        """Whether not all coordinates are watched."""
        return self.dim < self.whole

    def __call__(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, "points numbers"]:
        """The coordinates, then the other numbers."""
        own = z[:, self.coordinates] if self.selected else z
        if not self._names:
            return own
        blocks = []
        for first in range(0, len(z), AT_ONCE):
            block = z[first : first + AT_ONCE]
            padded = np.concatenate([block, np.repeat(block[-1:], AT_ONCE - len(block), axis=0)])
            blocks.append(self._variables(padded)[1][: len(block), self._taken])
        return np.concatenate([own, np.concatenate(blocks)], axis=1)

    def along(self, chains: Chains) -> Chains:
        """The numbers at all states of chains; those of a selection have been stored as such."""
        if not self._names or self.selected:
            return chains
        states = self(chains.z.reshape(-1, self.dim))
        shape = (*chains.z.shape[:2], states.shape[1])
        return chains._replace(start=self(chains.start), z=states.reshape(shape))

    def name(self, index: int) -> str:
        """What a number is called when speaking to the user."""
        if index < self.dim:
            return self.coordinate(int(self.coordinates[index]))
        return self._names[index - self.dim]

    def coordinate(self, index: int) -> str:
        """What a coordinate is called."""
        return coordinate_name(self._target, index)

    def spread_out(self, values: Float[np.ndarray, " numbers"], unseen: float) -> np.ndarray:
        """Values of the watched coordinates among all of them."""
        found = np.full(self.whole, unseen)
        found[self.coordinates] = values[: self.dim]
        return found

    def _variables(
        self, z: Float[np.ndarray, "points dim"]
    ) -> tuple[Callable[[int], str], Float[np.ndarray, "points numbers"]]:
        """Every number of every variable, small variables first, and what each is called."""
        found = jax.device_get(_constrain(self._target, on_device(z, self._dtype)))
        ordered = sorted(found.items(), key=lambda item: np.size(item[1]))
        sizes = np.cumsum([np.size(values) // len(z) for _, values in ordered])

        def name(number: int) -> str:
            place = int(np.searchsorted(sizes, number, side="right"))
            variable, values = ordered[place]
            within = number - (int(sizes[place - 1]) if place else 0)
            index = np.unravel_index(within, np.shape(values)[1:])
            return f"{variable}[{', '.join(map(str, index))}]" if index else variable

        flat = [np.reshape(values, (len(z), -1)).astype(float) for _, values in ordered]
        return name, np.concatenate(flat, axis=1)


def coupled(draws: Draws) -> Int[np.ndarray, " dim"]:
    """All coordinates, those most strongly coupled to others first.

    By s_i^2 E g_i^2 with the sd s_i and the gradient g_i under q. If f is a quadratic with precision P
    and q the best mean-field member, that is 1 + sum_{j != i} P_ij^2 / (P_ii P_jj): large for the scale
    of a hierarchy, which many others depend on, and one for a coordinate by itself.
    """
    finite, square = draws.finite, np.empty(draws.z.shape[1])
    for some in draws.blocks():
        slopes = np.mean(draws.slope[finite, some] ** 2, axis=0)
        square[some] = slopes * np.var(draws.z[:, some], axis=0)
    return np.argsort(-np.nan_to_num(square), kind="stable")


def _new(values: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Which columns are finite, change, and are none of the coordinates."""
    with np.errstate(invalid="ignore"):
        fine = np.all(np.isfinite(values), axis=0) & (np.ptp(values, axis=0) > 0)
    known = {column.tobytes() for column in z.T}
    return fine & np.array([column.tobytes() not in known for column in values.T], bool)


@program(level=SOONER)
def _constrain(target: Target, z: Float[Array, "points dim"]) -> dict[str, Array]:
    return over_points(target.constrain, z)
