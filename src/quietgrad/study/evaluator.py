"""What a cell is evaluated for on the way, off the clock: gradient noise, test lppd, and time left."""

from collections.abc import Callable

import jax.random as jr
from jaxtyping import Array, Key, PyTree

from ..estimators import AbstractEstimator
from ..evaluation.metrics import lppd
from ..families import AbstractFamily
from ..targets import Target
from .jobs import CellJob
from .noise import Noise


class OutOfTime(KeyboardInterrupt):
    """The cell's time is up. A fit ends on it as on Ctrl-C: with all that it has so far."""


class Evaluator:
    """Called at each evaluation of a fit; returns what is due at that step.

    `estimator` is None where gradient noise is not asked for, and `baseline` where it is NoCV's own.
    `late` says whether the cell has run out of time: `now()` is after the deadline.
    """

    def __init__(
        self,
        job: CellJob,
        train: Target,
        test: Target | None,
        estimator: AbstractEstimator | None,
        baseline: AbstractEstimator | None,
        *,
        deadline: float,
        now: Callable[[], float],
        key_noise: Key[Array, ""],
        key_test: Key[Array, ""],
    ):
        self.job, self.test, self.deadline, self.late = job, test, deadline, False
        self._now = now
        self.key_noise, self.key_test = key_noise, key_test
        how = job.schedule
        self.noise = None
        if estimator is not None:
            size, light = job.cell.batch_size, how.light_evaluation
            self.noise = Noise(train, estimator, baseline, how.variance_repeats, size, light)

    def __call__(self, q: AbstractFamily, state: PyTree, step: int) -> dict[str, float]:
        """What is due at this step; raises `OutOfTime` past the deadline."""
        if self._now() > self.deadline:
            self.late = True
            raise OutOfTime
        how, found = self.job.schedule, {}
        if self.noise is not None and self._due(how.variance_every, step):
            found |= self.noise.columns(q, state, key=jr.fold_in(self.key_noise, step))
        if self.test is not None and self._due(how.lppd_every, step):
            key = jr.fold_in(self.key_test, step)
            found["lppd"] = float(lppd(self.test, q, draws=how.lppd_draws, key=key))
        return found

    def _due(self, every: int, step: int) -> bool:
        if every <= 0:
            return False
        # A method that ends itself is evaluated seldom, and not at round steps.
        return self.job.cell.ends_itself or step % every == 0 or step == self.job.cell.steps
