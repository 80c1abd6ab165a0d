"""`estimator="auto"` under the user's optimiser: when noise dominates, take what quiets it best.

A few times during the run the present estimator's gradient is drawn some times over. As long as its mean
stands out from its spread the run is drifting, and the cheapest step is the right one. Once it does not,
the candidates are measured and the one with the least variance x cost takes over.
"""

import jax.random as jr
from jaxtyping import Array, UInt32

from .._random import key_of
from ..estimators import AbstractEstimator, name_of
from ..families import AbstractFamily
from ..recorder import Recorder
from ..targets import Target
from .choosing import choose, moments
from .journal import Decision

# Where in a run to look, as fractions of its steps.
LOOKS = (0.05, 0.1, 0.2, 0.4)
# Momentum averages about this many gradients.
AVERAGED = 10.0


class Switching:
    """Looks at the noise a few times during a run of `steps` steps."""

    def __init__(
        self,
        target: Target,
        *,
        steps: int,
        batch_size: int | None,
        by_clock: bool,
        words: UInt32[Array, "2"],
        averaged: float = AVERAGED,
    ):
        self.target, self.batch_size, self.by_clock, self.words = target, batch_size, by_clock, words
        self.averaged = averaged
        self.looks = [int(fraction * steps) for fraction in LOOKS]

    def __call__(
        self, q: AbstractFamily, estimator: AbstractEstimator, step: int, recorder: Recorder
    ) -> AbstractEstimator | None:
        """Look if it is time to; the estimator to change to, None to stay."""
        if not self.looks or step < self.looks[0]:
            return None
        self.looks = [look for look in self.looks if look > step]
        key_look, key_choose = jr.split(jr.fold_in(key_of(self.words), step))
        found = moments(self.target, q, estimator, self.batch_size, key=key_look)
        numbers = {"signal": found.signal}

        def note(kind: str, chosen: AbstractEstimator, **more: float) -> None:
            kept = {**numbers, **more}
            recorder.decisions.append(Decision(step, kind, name_of(chosen), float("nan"), kept))

        if self.averaged * found.signal > 1:
            note("drift", estimator)
            return None
        choice = choose(
            self.target,
            q,
            estimator,
            found.square,
            self.batch_size,
            by_clock=self.by_clock,
            key=key_choose,
        )
        if choice.estimator is None:
            note("stay", estimator)
            return None
        note("choose", choice.estimator, ratio=choice.ratio, cost=choice.cost)
        return choice.estimator
