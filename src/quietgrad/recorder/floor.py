"""The floor of a fit: a start that the user gave, below which no fit returns an answer.

The judge's draws compare the answer with the start, and so do draws that have judged nothing before
where those leave a doubt: the answer was chosen at the former, the start was not.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..families import AbstractFamily
from ..judging import Terms, paired
from .endings import BELOW
from .problem import Answer

# Standard errors by which the judge must find the answer better than the start, or fresh draws decide.
# Being the best of hundreds at the same draws is worth three of them.
BEYOND_DOUBT = 5.0


class Floor(NamedTuple):
    """Whether the start is to be returned, and the nats by which the answer is clearly below it."""

    start_is_better: bool
    below: float
    error: float

    @property
    def clearly(self) -> bool:
        """Whether the answer is so far below the start that a fit has not converged there."""
        return self.below > BELOW + 2 * self.error

    def in_words(self) -> str:
        """For a fit that believed to have converged."""
        return (
            f"the fit ended {self.below:.2f} ± {self.error:.2f} nats below the start that it was given, "
            "which is returned; give it more steps, or smaller ones"
        )


def compare(start: Answer, answer: Answer, fresh: Callable[[AbstractFamily], Terms]) -> Floor:
    """The answer against the start. `fresh` evaluates a q at draws that have judged nothing."""
    gained, error = paired(answer.terms, start.terms)
    if gained > 0 and gained > BEYOND_DOUBT * error:
        return Floor(start_is_better=False, below=0.0, error=0.0)
    below, error = paired(fresh(start.q), fresh(answer.q))
    return Floor(gained < 0 or below > 2 * error, below, error)
