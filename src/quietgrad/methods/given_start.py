"""A start that the user gave, for methods that begin in the mean-field family or at a mode."""

import math

import numpy as np

from ..diagnostics.expected_gain import conclusive_gain, expected_gain
from ..families import FitsQuadratic, MeanField
from ..session import Candidate, Problem, Recorder
from ..session.clock import OPTIMISE
from ..status import Status
from .method import Ending

# The scale of a coordinate whose draws are all the same.
LEAST_STD = 1e-6


def given_start(problem: Problem, session: Recorder) -> Candidate | None:
    """The start that the user gave, evaluated, if there is one and its ELBO is finite."""
    if not problem.start_given:
        return None
    begun = session.evaluate(problem.q, 0)
    return begun if math.isfinite(begun.terms.elbo) else None


def mean_field_at(given: Candidate) -> MeanField:
    """The mean-field member with the mean and the scales of the start; the start itself if it is one."""
    q = given.q
    if isinstance(q, MeanField):
        return q
    if isinstance(q, FitsQuadratic) and math.isfinite(q.base.variance):
        mean, variance = np.asarray(q.mean(), float), np.diagonal(q.host_covariance())
        return MeanField.of(mean, 0.5 * np.log(variance / q.base.variance), q)
    # Of the points at which the evaluator has seen it.
    return MeanField.of(given.terms.mean, np.log(np.maximum(given.terms.std, LEAST_STD)), q)


def stationary_start(given: Candidate, session: Recorder, worth: float) -> Ending | None:
    """The ending of a fit at whose start a Newton step is not expected to gain `worth` nats."""
    q = given.q
    if not isinstance(q, FitsQuadratic) or not math.isfinite(q.base.variance):
        return None
    rng, points = session.rng("expected gain at the start"), session.points
    with session.clock.phase(OPTIMISE):
        left = conclusive_gain(expected_gain(points, q, rng), points, q, rng, worth=worth)
    if not left.non_negative.clearly_below(worth):
        return None
    session.confirm_start()
    session.note("search stop", left=left.nats, left_error=left.error)
    return Status.CONVERGED, f"at the given start a Newton step is expected to gain {left}"


def mean_field_start(
    problem: Problem, session: Recorder, given: Candidate | None = None, which: str = ""
) -> MeanField:
    """The mean-field start that goes with a problem."""
    if problem.first is not None:
        return problem.first
    if given is not None and math.isfinite(given.terms.elbo):
        return mean_field_at(given)
    return MeanField.start_of(problem.q, session.rng(f"mean-field{which}"))
