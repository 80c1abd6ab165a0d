"""Many short Hamiltonian chains at once, started from draws of q: where they drift is where q is wrong.

Each leapfrog step of all chains is a few calls of the program that values and gradients come from, so
nothing is compiled. Chains move in the posterior's own metric, in which a time of pi/2 forgets the start
of a Gaussian.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..evaluation.points import Points
from .metric import Metric
from .settings import DEFAULT, Diagnostics

Keep = Callable[[Float[np.ndarray, "chains dim"]], Float[np.ndarray, "chains kept"]]


class Chains(NamedTuple):
    """The start and all states after it, log densities there, and the mean acceptance of late moves.

    Of states with very many coordinates, `start` and `z` hold the numbers that are watched, and `whole`
    the averages of all coordinates over the last round.
    """

    start: Float[np.ndarray, "chains kept"]
    z: Float[np.ndarray, "moves chains kept"]
    values: Float[np.ndarray, "moves chains"]
    acceptance: float
    whole: Float[np.ndarray, "chains dim"] | None = None

    def some(self, chosen: slice) -> "Chains":
        """Some of the chains."""
        whole = None if self.whole is None else self.whole[chosen]
        return Chains(
            self.start[chosen], self.z[:, chosen], self.values[:, chosen], self.acceptance, whole
        )

    def columns(self, count: int) -> "Chains":
        """The first numbers of every state."""
        return self._replace(start=self.start[:, :count], z=self.z[..., :count])

    def averages(self) -> Float[np.ndarray, "chains dim"]:
        """The late average of every coordinate."""
        return np.mean(self.late(), axis=0) if self.whole is None else self.whole

    def late(self) -> Float[np.ndarray, "moves chains dim"]:
        """The last two thirds of the moves."""
        return self.z[len(self.z) // 3 :]

    def late_values(self) -> Float[np.ndarray, "moves chains"]:
        """The log densities of `late`."""
        return self.values[len(self.values) // 3 :]


class Sampler:
    """Chains that can be run on; the step size is adapted until it is first asked for more.

    With `keep`, only what it makes of a state is stored, beside averages of all coordinates.
    """

    def __init__(
        self,
        points: Points,
        metric: Metric,
        start: Float[np.ndarray, "chains dim"],
        rng: np.random.Generator,
        settings: Diagnostics = DEFAULT,
        keep: Keep | None = None,
    ):
        self._settings, self._keep = settings, keep
        self._sum, self._count = np.zeros(start.shape if keep else 0), 0
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
        spent, settings = 0, self._settings
        self._sum, self._count = np.zeros_like(self._sum), 0
        while spent < gradients:
            wanted = round(settings.trajectory / self._step)
            leapfrogs = max(1, min(settings.most_leapfrogs, wanted))
            self._move(leapfrogs)
            spent += leapfrogs * len(self._start)
        self._adapting = False
        late = self._accepted[len(self._accepted) // 3 :]
        start = self._start if self._keep is None else self._keep(self._start)
        whole = None if self._keep is None else self._sum / self._count
        moves = np.stack(self._states), np.stack(self._values)
        return Chains(start, *moves, float(np.mean(late)), whole)

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
            self._step *= self._change(mean)
        if self._keep is not None:
            self._sum, self._count = self._sum + self._z, self._count + 1
        self._states.append(self._z if self._keep is None else self._keep(self._z))
        self._values.append(self._value)
        self._accepted.append(mean)

    def _change(self, acceptance: float) -> float:
        """By how much the step changes after a move."""
        settings = self._settings
        if acceptance < settings.poor_acceptance:
            return 0.5
        if acceptance < settings.least_acceptance:
            return 0.8
        return 1.2 if acceptance > settings.most_acceptance else 1.0
