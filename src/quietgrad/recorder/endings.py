"""The ending of a fit as it is: what a method claims, held against its answer at fresh draws."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from .. import movement, trouble
from ..families import AbstractFamily
from ..judging import Terms, paired
from ..ridges import ridge
from ..status import Status
from .limits import Ended
from .problem import Answer, Problem
from .values import Sight

# Nats below a contained family's solution that a converged fit may be, apart from noise.
BELOW = 0.5
# With a standard error above this, an ELBO says nothing about convergence.
UNKNOWN = 10.0
# Nats by which hyperparameters may be better far away from where a fit has converged.
RISING = 1.0
NOTHING_BETTER = (
    "nothing that the method tried was better than its start; give it another start, more steps, or "
    "smaller ones"
)


class Evidence(NamedTuple):
    """What an ending is held against: the first answer, the best of any family, the one to be returned.

    `points` makes some draws of a q, and `sight` looks at the log density. `stationary_start`: there is
    nothing to gain at a start that was given.
    """

    start: Answer | None
    best: Answer
    answer: Answer
    points: Callable[[AbstractFamily], Float[np.ndarray, "points dim"]]
    sight: Sight
    stationary_start: bool = False


def true_ending(
    problem: Problem, status: Status, hint: str, final: Terms, known: Evidence
) -> tuple[Status, str]:
    """The status and hint that the answer deserves; `final` are its terms at fresh draws."""
    answer, start, best = known.answer, known.start, known.best
    draws = 2 * final.values.size
    if final.bad == draws and not status.failed:
        return trouble.nowhere_finite(problem.target, known.points(answer.q))
    if final.bad and not status.failed:
        return trouble.partly_finite(final.bad / draws)
    if start is None or not math.isfinite(final.elbo):
        return status, hint
    if status is Status.CONVERGED and answer is start and not known.stationary_start:
        return Status.STALLED, NOTHING_BETTER
    if status is Status.CONVERGED and not final.error < UNKNOWN:
        return Status.STALLED, (
            f"the ELBO is only known to ± {final.error:.2g} nats, so that nothing can be said of "
            "convergence: some draws of q are where the density all but vanishes; try a narrower "
            "start, or another parametrisation"
        )
    behind, error = paired(best.terms, answer.terms)
    if status is Status.CONVERGED and behind > 2 * error + BELOW and problem.q.contains(best.q):
        return Status.STALLED, (
            f"the fit ended {behind:.2f} ± {error:.2f} nats below the {type(best.q).__name__} "
            "solution found on the way, which the family contains; give it more steps"
        )
    if status in (Status.BUDGET, Status.STALLED, Status.CONVERGED):
        mean, std = answer.terms.mean, answer.terms.std
        moved = movement.movement(mean, std, start.terms.mean, start.terms.std)
        coordinates, values = movement.furthest(moved), known.sight.values
        found = trouble.runaway(
            problem.target, values, mean, std, coordinates, start_std=start.terms.std
        )
        if found is None and problem.target.hyperparameter_count:
            # One that has converged may have its best value, but for this little, at infinity.
            least = RISING if status is Status.CONVERGED else 0.0
            points = known.points(answer.q)
            found = trouble.unbounded_hyperparameter(problem.target, values, points, least)
        if found is None and status is Status.CONVERGED:
            found = _ridge(problem, known.sight, answer)
        return found or (status, hint)
    return status, hint


def watched(problem: Problem, sight: Sight, answer: Answer, start: Answer, factor: float) -> float:
    """End a fit whose location or scales run away, as soon as that is plain.

    What has changed by more than `factor` since the start is looked at; the factor for the next look.
    """
    now, then = answer.terms, start.terms
    if not (np.all(np.isfinite(then.mean)) and np.all(np.isfinite(then.std))):
        return factor
    suspects = movement.suspicious(now.mean, now.std, then.mean, then.std, factor)
    if not suspects:
        return factor
    found = trouble.runaway(
        problem.target, sight.values, now.mean, now.std, suspects, start_std=then.std
    )
    found = found or _ridge(problem, sight, answer)
    if found is not None:
        raise Ended(*found)
    return factor * movement.SUSPICIOUS


def _ridge(problem: Problem, sight: Sight, place: Answer) -> trouble.Trouble | None:
    number_bytes = np.dtype(place.q.dtype).itemsize
    mean, std = place.terms.mean, place.terms.std
    return ridge(problem.target, sight.density, mean, std, number_bytes)
