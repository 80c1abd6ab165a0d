"""Which answer a fit returns, and with which status.

What a method claims is compared with its answer at fresh draws. No answer is returned below a start that
was given: the evaluator's draws compare the two. Where those leave a doubt, draws by which nothing was
chosen decide, since the answer was chosen at the former and the start was not.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..diagnostics import propriety
from ..diagnostics.propriety import Finding, LogDensityProbe
from ..evaluation.elbo_terms import Difference, ElboTerms, paired_difference
from ..families import AbstractFamily
from ..status import Status
from .clock import Ended
from .problem import Candidate, Problem

# Nats below a contained family's solution that a converged fit may be, apart from noise.
BELOW = 0.5
# With a standard error above this, an ELBO says nothing about convergence.
UNKNOWN = 10.0
# A pair of draws this many nats below the median has no weight beside the others, exp(-20). Where these
# are at most 1 % of all, so that no mean or scale depends on them, the others say what the ELBO is.
# So they do beside draws where numbers end.
DEEP, NEGLIGIBLE = 20.0, 0.01
# Nats by which hyperparameters may be better far away from where a fit has converged.
RISING = 1.0
# Statuses that an improper posterior explains better.
EXPLAINED = (Status.BUDGET, Status.STALLED, Status.CONVERGED, Status.NON_FINITE)
NOTHING_BETTER = (
    "nothing that the method tried was better than its start; give it another start, more steps, or "
    "smaller ones"
)
# Standard errors by which the evaluator must find the answer better than the start, or fresh draws
# decide. Being the best of hundreds at the same draws is worth three of them.
BEYOND_DOUBT = 5.0


class Evidence(NamedTuple):
    """What an ending is held against: the first answer, the best of any family, the one to be returned.

    `points` makes some draws of a q, and `probe` evaluates the log density. `stationary_start`: there is
    nothing to gain at a start that was given. `own` is the best that the method found in the family that
    was asked for, if the answer is a simpler solution in place of it.
    """

    start: Candidate | None
    best: Candidate
    answer: Candidate
    points: Callable[[AbstractFamily], Float[np.ndarray, "points dim"]]
    probe: LogDensityProbe
    stationary_start: bool = False
    own: Candidate | None = None


def verify_status(
    problem: Problem, status: Status, hint: str, final: ElboTerms, known: Evidence
) -> tuple[Status, str]:
    """The status and hint that the answer deserves; `final` are its terms at fresh draws.

    Where the posterior is improper, that is the reason, whatever the method ran into.
    """
    if final.bad == 2 * final.values.size and not status.failed:
        points = known.points(known.answer.q)
        return propriety.nowhere_finite(problem.target, points).ending
    status, hint = _by_draws(problem, status, hint, final, known)
    if known.start is None or not math.isfinite(known.answer.terms.elbo) or status not in EXPLAINED:
        return status, hint
    found = _improper(problem, status, known, known.start)
    return (status, hint) if found is None else found.ending


def _by_draws(
    problem: Problem, status: Status, hint: str, final: ElboTerms, known: Evidence
) -> tuple[Status, str]:
    """What the draws of the answer say of a claim."""
    answer, start, best = known.answer, known.start, known.best
    if final.bad and not status.failed:
        share, others = final.bad / (2 * final.values.size), final.resolved(NEGLIGIBLE)
        if others is final:
            return propriety.partly_finite(share).ending
        hint += (
            f"; at {share:.2%} of q's draws the log density is not a number: numbers end there, or the "
            f"model's support does; by the others the ELBO is {others.elbo:.2f} ± {others.error:.2f}"
        )
        final = others
    if start is None or not math.isfinite(final.elbo) or status is not Status.CONVERGED:
        return status, hint
    if answer is start and not known.stationary_start:
        return Status.STALLED, NOTHING_BETTER
    deep = final.deep(DEEP) if not final.error < UNKNOWN else None
    if deep is not None and deep.share <= NEGLIGIBLE and deep.others.error < UNKNOWN:
        hint += (
            f"; {deep.share:.2%} of q's draws are where the density all but vanishes, without which the "
            f"ELBO is {deep.others.elbo:.2f} ± {deep.others.error:.2f}"
        )
    elif deep is not None:
        return Status.STALLED, (
            f"the ELBO is only known to ± {final.error:.2g} nats, so that nothing can be said of "
            "convergence: some draws of q are where the density all but vanishes; try a narrower "
            "start, or another parametrisation"
        )
    behind = paired_difference(best.terms, (known.own or answer).terms)
    if behind.clearly_above(BELOW) and problem.q.contains(best.q):
        return Status.STALLED, (
            f"the fit ended {behind.nats:.2f} ± {behind.error:.2f} nats below the "
            f"{type(best.q).__name__} solution found on the way, which the family contains and which is "
            "returned as a member of it; give it more steps"
        )
    return status, hint


def _improper(problem: Problem, status: Status, known: Evidence, start: Candidate) -> Finding | None:
    """What stands in the way of any answer: along coordinates, in hyperparameters, or between them."""
    answer, probe = known.answer, known.probe
    now, then = answer.terms, start.terms
    moved = propriety.displacement(now.mean, now.std, then.mean, then.std)
    found = _along_coordinates(probe, answer, start, propriety.furthest(moved))
    if found is None and problem.target.hyperparameter_count:
        # One that has converged may have its best value, but for this little, at infinity.
        least = RISING if status is Status.CONVERGED else 0.0
        found = propriety.unbounded_hyperparameter(probe, known.points(answer.q), least)
    return _between_coordinates(probe, answer, start) if found is None else found


def check_divergence(
    probe: LogDensityProbe, answer: Candidate, start: Candidate, factor: float
) -> float:
    """End a fit whose location or scales diverge, as soon as that is certain.

    Coordinates that have changed by more than `factor` since the start are looked at; returns the factor
    for the next time. What may still bend does not end a fit: `verify_status` checks its answer.
    """
    now, then = answer.terms, start.terms
    if not (np.all(np.isfinite(then.mean)) and np.all(np.isfinite(then.std))):
        return factor
    suspects = propriety.displaced(now.mean, now.std, then.mean, then.std, factor)
    if not suspects:
        return factor
    searches = [
        lambda: _along_coordinates(probe, answer, start, suspects),
        lambda: _between_coordinates(probe, answer, start),
    ]
    if not math.isfinite(now.elbo):
        # A fit that diverges may be where numbers have ended already; its start is not. Elsewhere the
        # start says nothing: far from the mass, a density can rise for a long way along a coordinate.
        searches.insert(1, lambda: propriety.unbounded_coordinate(probe, then.mean, then.std, suspects))
    for search in searches:
        found = search()
        if found is not None and found.certain:
            raise Ended(*found.ending)
    return factor * propriety.DEFAULT.displaced


def _along_coordinates(
    probe: LogDensityProbe, answer: Candidate, start: Candidate, coordinates: list[int]
) -> Finding | None:
    """Infinite mass, or a spike, along one of these coordinates."""
    mean, std = answer.terms.mean, answer.terms.std
    found = propriety.unbounded_coordinate(probe, mean, std, coordinates)
    if found is None:
        found = propriety.spike(probe, mean, std, coordinates, start_std=start.terms.std)
    return found


def _between_coordinates(probe: LogDensityProbe, answer: Candidate, start: Candidate) -> Finding | None:
    mean, std = answer.terms.mean, answer.terms.std
    return propriety.unbounded_direction(probe, mean, std, mean - start.terms.mean)


class Answers(NamedTuple):
    """The first answer, the best, and those of the family that was asked for: the last, and the best of
    them, `own`."""

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
            last=answer if own else self.last,
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
