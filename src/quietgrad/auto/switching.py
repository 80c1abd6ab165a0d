"""`estimator="auto"` under the user's optimiser: when noise dominates, take what quiets it best.

A few times during the run the present estimator's gradient is drawn some times over. As long as its mean
stands out from its spread the run is drifting, and the cheapest step is the right one. Once it does not,
the candidates are measured and the one with the least variance x cost takes over.
"""

import jax.random as jr
from jaxtyping import Array, Key

from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..loop import Change
from ..targets import Target
from .choose import choose, moments, name_of
from .journal import Decision

# Where in a run to look, as fractions of its steps.
LOOKS = (0.05, 0.1, 0.2, 0.4)
# Momentum averages about this many gradients.
AVERAGED = 10.0


class Switching:
    """Looks at the noise a few times during a run of `steps` steps."""

    def __init__(
        self, target: Target, *, steps: int, batch_size: int | None, by_clock: bool, key: Key[Array, ""]
    ):
        self.target, self.batch_size, self.by_clock, self.key = target, batch_size, by_clock, key
        self.looks = [int(fraction * steps) for fraction in LOOKS]
        self.decisions: list[Decision] = []

    def __call__(self, q: AbstractFamily, estimator: AbstractEstimator, step: int) -> Change:
        """Look if it is time to, and change if it pays."""
        if not self.looks or step < self.looks[0]:
            return Change(None, 0.0)
        self.looks = [look for look in self.looks if look > step]
        key_look, key_choose = jr.split(jr.fold_in(self.key, step))
        found = moments(self.target, q, estimator, self.batch_size, key=key_look)
        numbers = {"signal": found.signal}
        if AVERAGED * found.signal > 1:
            self._note(step, "drift", estimator, numbers)
            return Change(None, found.seconds)
        choice = choose(
            self.target,
            q,
            estimator,
            found.square,
            self.batch_size,
            by_clock=self.by_clock,
            key=key_choose,
        )
        seconds = found.seconds + choice.seconds
        if choice.estimator is None:
            self._note(step, "stay", estimator, numbers)
            return Change(None, seconds)
        numbers |= {"ratio": choice.ratio, "cost": choice.cost}
        self._note(step, "choose", choice.estimator, numbers)
        return Change(choice.estimator, seconds)

    def _note(self, step: int, kind: str, estimator: AbstractEstimator, numbers: dict) -> None:
        self.decisions.append(Decision(step, kind, name_of(estimator), float("nan"), numbers))
