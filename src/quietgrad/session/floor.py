"""The floor of a fit: a start that the user gave, below which no fit returns an answer.

The judge's draws compare the answer with the start, and so do draws that have judged nothing before
where those leave a doubt: the answer was chosen at the former, the start was not.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..evaluation.difference import Difference
from ..evaluation.judging import Terms, paired_difference
from ..families import AbstractFamily
from .endings import BELOW
from .problem import Candidate

# Standard errors by which the judge must find the answer better than the start, or fresh draws decide.
# Being the best of hundreds at the same draws is worth three of them.
BEYOND_DOUBT = 5.0


class Floor(NamedTuple):
    """Whether the start is to be returned, and how far the answer is below it."""

    start_is_better: bool
    below: Difference

    @property
    def clearly(self) -> bool:
        """Whether the answer is so far below the start that a fit has not converged there."""
        return self.below.clearly_above(BELOW)

    def in_words(self) -> str:
        """For a fit that believed to have converged."""
        nats, error = self.below
        return (
            f"the fit ended {nats:.2f} ± {error:.2f} nats below the start that it was given, which is "
            "returned; give it more steps, or smaller ones"
        )


def compare(start: Candidate, answer: Candidate, fresh: Callable[[AbstractFamily], Terms]) -> Floor:
    """The answer against the start. `fresh` evaluates a q at draws that have judged nothing."""
    gained = paired_difference(answer.terms, start.terms)
    if gained.nats > max(0.0, BEYOND_DOUBT * gained.error):
        return Floor(start_is_better=False, below=Difference(0.0, 0.0))
    below = paired_difference(fresh(start.q), fresh(answer.q))
    return Floor(gained.nats < 0 or below.clearly_above(), below)
