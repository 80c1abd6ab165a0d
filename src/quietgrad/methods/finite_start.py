"""A start at whose draws the density is finite, found by narrowing and moving the one that was given."""

import math

import numpy as np

from ..clock import OPTIMISE
from ..families import MeanField
from ..host_draws import spread_pairs
from ..points import Points
from ..propriety import nowhere_finite
from ..recorder import Ended, Recorder

PAIRS, NUMBERS = 16, 2**22
# How often a start is narrowed by a factor of ten, and the log scale of one that is narrow.
NARROWER, NARROW = 4, -4.0


def finite_start(
    points: Points, start: MeanField, rng: np.random.Generator, recorder: Recorder
) -> MeanField:
    """A start at whose draws the density is finite: narrower, then at zero, then narrow anywhere."""
    pairs = max(2, min(PAIRS, NUMBERS // (2 * start.dim)))
    e = spread_pairs(start.base, pairs, start.dim, rng)
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
