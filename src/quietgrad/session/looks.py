"""The share of time that evaluation may take: what a look cost, and whether another is affordable."""

from collections.abc import Callable

from ..evaluation.judging import Terms
from .clock import EVALUATE, OPTIMISE, Clock

# Evaluation that nobody notices: below this many seconds its share does not matter.
FREE_SECONDS = 0.5


class Looks:
    """How many there were, and the seconds of the last."""

    def __init__(self, count: int = 0, last: float = 0.0):
        self.count, self.last = count, last

    def affordable(self, clock: Clock, share: float | None) -> bool:
        """Whether a look like the last one keeps evaluation within its share of the optimisation."""
        if share is None or self.count == 0:
            return True
        after = clock.spent(EVALUATE) + self.last
        return after <= max(FREE_SECONDS, share * clock.spent(OPTIMISE))

    def timed(self, clock: Clock, evaluate: Callable[[], Terms]) -> Terms:
        """What `evaluate` returns; its seconds are remembered."""
        began = clock.spent(EVALUATE)
        terms = evaluate()
        self.last, self.count = clock.spent(EVALUATE) - began, self.count + 1
        return terms
