"""`estimator="auto"` under the user's optimiser: when noise dominates, take what quiets it best.

A few times during the run the present estimator's gradient is drawn some times over. As long as its mean
stands out from its spread the run is drifting, and the cheapest step is the right one. Once it does not,
the candidates are measured and the one with the least variance x cost takes over.
"""

import equinox as eqx
import jax.random as jr

from .._util.random import key_of
from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..session import Recorder
from .choosing import choose, moments


class Switching(eqx.Module):
    """Probes at `fractions` of a run: early, and ever less often, because each costs some steps.

    Momentum averages about `averaged` gradients (Adam's decay of 0.9), so that noise dominates where
    the signal's share of one gradient's square is below 1 / `averaged`.
    """

    fractions: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    averaged: float = 10.0

    def at(self, steps: int) -> tuple[int, ...]:
        """The steps at which a run of so many is probed."""
        return tuple(int(fraction * steps) for fraction in self.fractions)

    def __call__(
        self,
        session: Recorder,
        q: AbstractFamily,
        estimator: AbstractEstimator,
        step: int,
        *,
        by_clock: bool,
    ) -> AbstractEstimator | None:
        """The estimator to change to, None to stay."""
        problem = session.problem
        key_noise, key_choose = jr.split(jr.fold_in(key_of(session.seed("switch")), step))
        found = moments(problem.target, q, estimator, problem.batch_size, key=key_noise)
        if self.averaged * found.signal > 1:
            session.note("drift", estimator=estimator, signal=found.signal)
            return None
        choice = choose(
            problem.target,
            q,
            estimator,
            found.square,
            problem.batch_size,
            by_clock=by_clock,
            key=key_choose,
        )
        if choice.estimator is None:
            session.note("stay", estimator=estimator, signal=found.signal)
            return None
        numbers = {"signal": found.signal, "ratio": choice.ratio, "cost": choice.cost}
        session.note("choose", estimator=choice.estimator, **numbers)
        return choice.estimator
