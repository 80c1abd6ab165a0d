"""What people are told of a fit as it runs. Methods say what they are at; nothing depends on it."""

from collections.abc import Callable, Mapping

from .._util.progress import Sight, time_left
from ..estimators import AbstractEstimator, name_of
from .clock import OPTIMISE, Clock
from .problem import Candidate


def _unknown() -> None:
    """What is not known."""


class Progress:
    """The stage of a fit, the steps it plans, and the signal-to-noise ratio of its gradient.

    `signal` is asked only if somebody watches, and counts for the evaluation that comes next.
    """

    def __init__(self) -> None:
        self.stage = ""
        self.signal: Callable[[], float | None] = _unknown
        self._plan: tuple[int, int, float] | None = None

    def plan(self, first: int, last: int, clock: Clock) -> None:
        """Say that steps from `first` to `last` are coming, so that people learn how long they take."""
        self._plan = first, last, clock.spent(OPTIMISE)

    def sight(
        self,
        answer: Candidate,
        row: Mapping[str, float | int],
        estimator: AbstractEstimator | None,
        left: float,
    ) -> Sight:
        """What there is to tell of an answer, `left` seconds before a limit."""
        pace = planned = None
        if self._plan is not None:
            first, last, begun = self._plan
            planned = last - answer.step
            pace = (row["seconds"] - begun) / (answer.step - first) if answer.step > first else None
        signal, self.signal = self.signal(), _unknown
        return Sight(
            stage=self.stage,
            family=type(answer.q).__name__,
            step=answer.step,
            elbo=row["elbo"],
            error=row["elbo_error"],
            elapsed=row["wall"],
            estimator=None if estimator is None else name_of(estimator),
            signal=signal,
            left=time_left(left, pace, planned),
        )
