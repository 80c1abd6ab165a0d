"""Many short Hamiltonian chains at once, started from draws of q: where they drift is where q is wrong.

Each leapfrog step of all chains is a few calls of the program that values and gradients come from, so
nothing is compiled. Chains move in the posterior's own metric, in which a time of pi/2 forgets the start
of a Gaussian.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..evaluation.points import Points
from .metric import Metric

TIME = 0.5 * math.pi
MOST_LEAPFROGS = 12
# Acceptance that the step is adapted to lie between.
WANTED = (0.75, 0.92)


class Chains(NamedTuple):
    """All states after the start, log densities there, and the mean acceptance of late moves."""

    start: Float[np.ndarray, "chains dim"]
    z: Float[np.ndarray, "moves chains dim"]
    values: Float[np.ndarray, "moves chains"]
    acceptance: float

    def some(self, chosen: slice) -> "Chains":
        """Some of the chains."""
        return Chains(self.start[chosen], self.z[:, chosen], self.values[:, chosen], self.acceptance)

    def late(self) -> Float[np.ndarray, "moves chains dim"]:
        """The last two thirds of the moves."""
        return self.z[len(self.z) // 3 :]

    def late_values(self) -> Float[np.ndarray, "moves chains"]:
        """The log densities of `late`."""
        return self.values[len(self.values) // 3 :]


class Sampler:
    """Chains that can be run on; the step size is adapted until it is first asked for more."""

    def __init__(
        self,
        points: Points,
        metric: Metric,
        start: Float[np.ndarray, "chains dim"],
        rng: np.random.Generator,
    ):
        self._points, self._metric, self._rng, self._start = points, metric, rng, start
        self._z = start
        self._value, self._slope = points(start)
        self._step = start.shape[1] ** -0.25
        self._adapting = True
        self._states: list[np.ndarray] = []
        self._values: list[np.ndarray] = []
        self._accepted: list[float] = []

    def run(self, gradients: int) -> Chains:
        """Go on for about as many gradients; everything so far."""
        spent = 0
        while spent < gradients:
            leapfrogs = max(1, min(MOST_LEAPFROGS, round(TIME / self._step)))
            self._move(leapfrogs)
            spent += leapfrogs * len(self._start)
        self._adapting = False
        late = self._accepted[len(self._accepted) // 3 :]
        return Chains(self._start, np.stack(self._states), np.stack(self._values), float(np.mean(late)))

    def _move(self, leapfrogs: int) -> None:
        """One move of all chains: leapfrog steps, then accept or stay."""
        rng, count = self._rng, len(self._start)
        momentum = rng.standard_normal(self._start.shape)
        step = self._step * rng.uniform(0.8, 1.1, (count, 1))
        z, value, slope = self._z, self._value, self._slope
        before = value - 0.5 * np.sum(momentum**2, axis=1)
        with np.errstate(all="ignore"):
            momentum = momentum + 0.5 * step * self._metric.pull(slope)
            for number in range(leapfrogs):
                z = z + step * self._metric.push(momentum)
                value, slope = self._points(z)
                momentum = momentum + (1.0 if number + 1 < leapfrogs else 0.5) * step * (
                    self._metric.pull(slope)
                )
            gain = value - 0.5 * np.sum(momentum**2, axis=1) - before
        chance = np.where(np.isfinite(gain), np.exp(np.minimum(gain, 0.0)), 0.0)
        accepted = rng.random(count) < chance
        self._z = np.where(accepted[:, None], z, self._z)
        self._slope = np.where(accepted[:, None], slope, self._slope)
        self._value = np.where(accepted, value, self._value)
        mean = float(np.mean(chance))
        if self._adapting:
            low, high = WANTED
            self._step *= 0.5 if mean < 0.4 else 0.8 if mean < low else 1.2 if mean > high else 1.0
        self._states.append(self._z)
        self._values.append(self._value)
        self._accepted.append(mean)
