"""On along a slope that is faint but beyond doubt, to see whether it levels out.

A Newton step promises what a quadratic would give. Around an optimum two whole steps leave next to
nothing of it. At the rim of a hill, such as between two modes, they leave as much as there was, however
little that is, and nats lie beyond.
"""

from typing import NamedTuple

import numpy as np

from ..clock import OPTIMISE
from ..diagnostics.expected_gain import ExpectedGain, expected_gain
from ..families import FitsQuadratic
from ..judging import paired
from ..points import Points
from ..recorder import Recorder
from .newton import FULL_STEPS, Curved, newton

# Standard errors above which a promise is beyond doubt, and nats below which it is rounding.
CERTAIN, FAINT = 4.0, 1e-3
# The share of a promise that whole steps may leave where it levels out.
LEVEL = 0.5
# Of the judge's usual number of gradients: noise must not make the slope.
MORE_DRAWS = 4


class Followed(NamedTuple):
    """Where the slope led, what is left there, the nats on the way, and whether it levelled out."""

    best: Curved
    left: ExpectedGain
    gained: float
    level: bool


def follow(
    points: Points,
    best: Curved,
    left: ExpectedGain,
    recorder: Recorder,
    rng: np.random.Generator,
    *,
    rounds: int,
) -> Followed:
    """Whole Newton steps, two at a time, while they gain and what is left does not fall."""
    start = best.terms
    for _ in range(rounds):
        if not left.nats > max(FAINT, CERTAIN * left.error):
            break
        afresh = best._replace(precision=None, number=0)
        found = newton(
            points, afresh, recorder, rng, gain=None, most_steps=FULL_STEPS, more_draws=MORE_DRAWS
        )
        gained, error = paired(found.terms, best.terms)
        if not gained > error:
            break
        best, before = found._replace(steps=best.steps + FULL_STEPS), left
        assert isinstance(best.q, FitsQuadratic)
        with recorder.clock.phase(OPTIMISE):
            left = expected_gain(points, best.q, rng, best.precision)
        if left.nats < LEVEL * before.nats:
            break
    else:
        return Followed(best, left, paired(best.terms, start)[0], level=False)
    return Followed(best, left, paired(best.terms, start)[0], level=True)
