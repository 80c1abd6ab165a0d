"""A start at whose draws the density is finite, found by narrowing and moving the one that was given."""

import math

import numpy as np

from ..diagnostics.propriety import nowhere_finite
from ..evaluation.host_draws import sobol_pairs
from ..evaluation.points import Points
from ..families import MeanField
from ..session import Ended, Recorder
from ..session.clock import OPTIMISE

PAIRS, NUMBERS = 16, 2**22
# How often a start is narrowed by a factor of ten, and the log scale of one that is narrow.
NARROWER, NARROW = 4, -4.0


def narrower(start: MeanField, by: float) -> MeanField:
    """The start with its log scales lowered."""
    return MeanField.of(np.asarray(start.loc), np.asarray(start.log_std) - by, start)


def finite_start(points: Points, start: MeanField, recorder: Recorder) -> MeanField:
    """A start at whose draws the density is finite: narrower, then at zero, then narrow anywhere."""
    rng = recorder.rng("starts")
    pairs = max(2, min(PAIRS, NUMBERS // (2 * start.dim)))
    e = sobol_pairs(start.base, pairs, start.dim, rng)
    loc, log_std = np.asarray(start.loc, float), np.asarray(start.log_std, float)
    tried: list[np.ndarray] = []
    anywhere = [rng.standard_normal(start.dim) for _ in range(NARROWER)]
    places = [
        *((loc, log_std - k * math.log(10)) for k in range(NARROWER + 1)),
        *((0 * loc, log_std - k * math.log(10)) for k in range(NARROWER + 1)),
        *((there, np.full(start.dim, NARROW)) for there in anywhere),
    ]
    for place, scales in places:
        z = place + np.exp(scales) * e
        with recorder.clock.phase(OPTIMISE):
            values, slopes = points(z)
        if np.all(np.isfinite(values)) and np.all(np.isfinite(slopes)):
            return MeanField.of(place, scales, start)
        tried.extend(z)
        recorder.check()
    raise Ended(*nowhere_finite(recorder.problem.target, np.stack(tried)).ending)
