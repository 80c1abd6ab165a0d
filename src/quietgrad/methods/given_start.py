"""A start that the user gave, for methods that begin in the mean-field family or at a mode."""

import math

import numpy as np

from ..clock import OPTIMISE
from ..diagnostics.expected_gain import ExpectedGain, conclusive_gain, expected_gain
from ..families import AbstractFamily, FitsQuadratic, MeanField
from ..points import Points
from ..recorder import Answer, Problem, Recorder

# The scale of a coordinate whose draws are all the same.
LEAST_STD = 1e-6


def given_start(problem: Problem, recorder: Recorder) -> Answer | None:
    """The start that the user gave, evaluated, if there is one and its ELBO is finite."""
    if not problem.start_given:
        return None
    begun = recorder.look(problem.q, 0)
    return begun if math.isfinite(begun.terms.elbo) else None


def mean_field_at(given: Answer, q: AbstractFamily) -> MeanField:
    """The mean-field member with the mean and the scales of the start; the start itself if it is one."""
    if isinstance(given.q, MeanField):
        return given.q
    if isinstance(q, FitsQuadratic) and math.isfinite(q.base.variance):
        mean, variance = np.asarray(q.mean(), float), np.diagonal(q.host_covariance())
        return MeanField.of(mean, 0.5 * np.log(variance / q.base.variance), q)
    # Of the points at which the judge has evaluated it.
    return MeanField.of(given.terms.mean, np.log(np.maximum(given.terms.std, LEAST_STD)), q)


def nothing_to_gain(
    points: Points, q: AbstractFamily, recorder: Recorder, worth: float
) -> ExpectedGain | None:
    """What a Newton step promises at q, if that is below `worth` nats beyond doubt."""
    if not isinstance(q, FitsQuadratic) or not math.isfinite(q.base.variance):
        return None
    rng = recorder.rng("left at the start")
    with recorder.clock.phase(OPTIMISE):
        left = conclusive_gain(expected_gain(points, q, rng), points, q, rng, worth=worth)
    return left if left.below(worth) else None
