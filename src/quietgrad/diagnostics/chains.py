"""Many short Hamiltonian chains at once, started from draws of q: where they drift is where q is wrong.

Each leapfrog step of all chains is a few calls of the program that values and gradients come from, so
nothing is compiled. Chains move in the posterior's own metric, in which a time of pi/2 forgets the start
of a Gaussian.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .charts import AbstractChart
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

    They move in the coordinates of a chart, whose scales `metric` has, and are handed out as points.
    With `keep`, only what it makes of a point is stored, and averages of all coordinates; the chart is
    then a plain one. The step is adapted as that of short chains, unless it is to `aim_at` another
    acceptance.
    """

    def __init__(
        self,
        chart: AbstractChart,
        metric: Metric,
        start: Float[np.ndarray, "chains base"],
        rng: np.random.Generator,
        settings: Diagnostics = DEFAULT,
        keep: Keep | None = None,
    ):
        self._settings, self._keep = settings, keep
        self._most, self._acceptance = settings.most_leapfrogs, settings.acceptance
        self._chart, self._metric, self._rng = chart, metric, rng
        self._u = start
        self._value, self._slope = chart(start)
        self._step = start.shape[1] ** -0.25
        self.forget(metric)

    def aim_at(self, acceptance: tuple[float, float], most_leapfrogs: int) -> None:
        """Adapt the step to an acceptance between these two, with trajectories of at most so many."""
        self._acceptance, self._most, self._adapting = acceptance, most_leapfrogs, True

    def forget(self, metric: Metric | None = None) -> None:
        """Begin again at the present states; in another metric, if one is given, to which the step is
        adapted. Otherwise the step stays as it is once it has been adapted."""
        self._metric = self._metric if metric is None else metric
        self._adapting, self._start = metric is not None, self._u
        self._sum, self._count = np.zeros(self._u.shape if self._keep else 0), 0
        self._states: list[np.ndarray] = []
        self._values: list[np.ndarray] = []
        self._told: list[np.ndarray] = []
        self._accepted: list[float] = []
        self._diverged: list[float] = []

    def run(self, gradients: int) -> Chains:
        """Go on for about as many gradients; everything so far."""
        spent = 0
        self._sum, self._count = np.zeros_like(self._sum), 0
        while spent < gradients:
            spent += self._move() * len(self._start)
        return self._chains()

    def advance(self, moves: int) -> Chains:
        """Go on for some moves; everything so far."""
        for _ in range(moves):
            self._move()
        return self._chains()

    @property
    def diverged(self) -> float:
        """The share of proposals whose energy is off by more than any useful step's."""
        return float(np.mean(self._diverged)) if self._diverged else 0.0

    @property
    def step(self) -> float:
        """The size of a leapfrog step in the metric."""
        return self._step

    @property
    def states(self) -> Float[np.ndarray, "moves chains base"]:
        """All states so far, in the coordinates of the chart."""
        return np.stack(self._states)

    def _chains(self) -> Chains:
        self._adapting = False
        late = self._accepted[len(self._accepted) // 3 :]
        whole = None if self._keep is None else self._sum / self._count
        for number in range(len(self._told), len(self._states)):
            z, log_det = self._chart.carry(self._states[number])
            self._values[number] = self._values[number] - log_det
            self._told.append(z if self._keep is None else self._states[number])
        start = self._chart.carry(self._start)[0]
        start = start if self._keep is None else self._keep(start)
        moves = np.stack(self._told), np.stack(self._values)
        return Chains(start, *moves, float(np.mean(late)), whole)

    def _move(self) -> int:
        """One move of all chains: leapfrog steps, then accept or stay. How many steps these were."""
        rng, count, settings = self._rng, len(self._start), self._settings
        leapfrogs = max(1, min(self._most, round(settings.trajectory / self._step)))
        momentum = rng.standard_normal(self._start.shape)
        step = self._step * rng.uniform(0.8, 1.1, (count, 1))
        u, value, slope = self._u, self._value, self._slope
        before = value - 0.5 * np.sum(momentum**2, axis=1)
        with np.errstate(all="ignore"):
            momentum = momentum + 0.5 * step * self._metric.pull(slope)
            for number in range(leapfrogs):
                u = u + step * self._metric.push(momentum)
                value, slope = self._chart(u)
                momentum = momentum + (1.0 if number + 1 < leapfrogs else 0.5) * step * (
                    self._metric.pull(slope)
                )
            gain = value - 0.5 * np.sum(momentum**2, axis=1) - before
        chance = np.where(np.isfinite(gain), np.exp(np.minimum(gain, 0.0)), 0.0)
        accepted = rng.random(count) < chance
        self._u = np.where(accepted[:, None], u, self._u)
        self._slope = np.where(accepted[:, None], slope, self._slope)
        self._value = np.where(accepted, value, self._value)
        mean = float(np.mean(chance))
        if self._adapting:
            self._step *= self._change(mean)
        if self._keep is not None:
            self._sum, self._count = self._sum + self._u, self._count + 1
        self._states.append(self._u if self._keep is None else self._keep(self._u))
        self._values.append(self._value)
        self._accepted.append(mean)
        self._diverged.append(float(np.mean(~(gain > -settings.divergence))))
        return leapfrogs

    def _change(self, acceptance: float) -> float:
        """By how much the step changes after a move."""
        settings = self._settings
        if acceptance < settings.poor_acceptance:
            return 0.5
        least, most = self._acceptance
        if acceptance < least:
            return 0.8
        return 1.2 if acceptance > most else 1.0
