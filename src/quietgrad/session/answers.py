"""The answers of a fit that are kept: the first, the last, the best, and the best of its own family."""

from ..evaluation.judging import paired_difference
from .problem import Candidate


class Answers:
    """Keeps what was told. `own` is the best one of the family that was asked for."""

    def __init__(self) -> None:
        self.start: Candidate | None = None
        self.last: Candidate | None = None
        self.best: Candidate | None = None
        self.own: Candidate | None = None
        self.prefer_last = self.saw_bad = False

    def add(self, answer: Candidate, *, own: bool) -> None:
        """Take in an answer; `own` says whether it is of the family that was asked for."""
        if self.start is None:
            self.start = answer
        if self.best is None or paired_difference(answer.terms, self.best.terms)[0] > 0:
            self.best = answer
        if own and (self.own is None or paired_difference(answer.terms, self.own.terms)[0] > 0):
            self.own = answer
        self.last, self.saw_bad = answer, self.saw_bad or answer.terms.bad > 0

    def chosen(self, own: Candidate) -> Candidate:
        """What to return: `own`, the family's best, or the last answer if that is preferred."""
        last = self.last
        if last is None or last is own or not self.prefer_last:
            return own
        gain, error = paired_difference(last.terms, own.terms)
        return last if gain > -2 * error else own
