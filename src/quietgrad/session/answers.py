"""The answers of a fit that are kept, and its floor: no answer is returned below a start that was given.

The evaluator's draws compare the answer with the start. Where those leave a doubt, draws by which
nothing was chosen decide: the answer was chosen at the former, the start was not.
"""

from collections.abc import Callable
from typing import NamedTuple

from ..evaluation.difference import Difference
from ..evaluation.elbo_terms import ElboTerms, paired_difference
from ..families import AbstractFamily
from .endings import BELOW
from .problem import Candidate

# Standard errors by which the evaluator must find the answer better than the start, or fresh draws
# decide. Being the best of hundreds at the same draws is worth three of them.
BEYOND_DOUBT = 5.0


class Answers(NamedTuple):
    """The first answer, the last, the best, and the best of the family that was asked for, `own`."""

    start: Candidate | None = None
    last: Candidate | None = None
    best: Candidate | None = None
    own: Candidate | None = None
    prefer_last: bool = False
    saw_bad: bool = False

    def add(self, answer: Candidate, *, own: bool) -> "Answers":
        """With one more answer; `own` says whether it is of the family that was asked for."""
        return self._replace(
            start=answer if self.start is None else self.start,
            best=_better(answer, self.best),
            own=_better(answer, self.own) if own else self.own,
            last=answer,
            saw_bad=self.saw_bad or answer.terms.bad > 0,
        )

    def chosen(self, own: Candidate) -> Candidate:
        """What to return: `own`, the family's best, or the last answer if that is preferred."""
        last = self.last
        if last is None or last is own or not self.prefer_last:
            return own
        return own if paired_difference(last.terms, own.terms).clearly_below() else last


def _better(answer: Candidate, before: Candidate | None) -> Candidate:
    if before is None or paired_difference(answer.terms, before.terms).nats > 0:
        return answer
    return before


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


def compare(start: Candidate, answer: Candidate, fresh: Callable[[AbstractFamily], ElboTerms]) -> Floor:
    """The answer against the start. `fresh` evaluates a q at draws that have judged nothing."""
    gained = paired_difference(answer.terms, start.terms)
    if gained.nats > max(0.0, BEYOND_DOUBT * gained.error):
        return Floor(start_is_better=False, below=Difference(0.0, 0.0))
    below = paired_difference(fresh(start.q), fresh(answer.q))
    return Floor(gained.nats < 0 or below.clearly_above(), below)
