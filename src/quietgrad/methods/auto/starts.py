"""Where an automatic fit starts: several cheap starts compete, and the judge's draws decide.

In the mean-field family: the climb at fixed draws from the family's own start, and a second one from the
mode with its curvature, or from a small scale where that is not to be had. A narrow start finds the mode
first and then widens: right where a density explodes far out. Families with correlations also start at
the mode itself, with all of its curvature. The mode misleads where scales are hierarchical, the climb
where coordinates are nearly dependent; so both run.
"""

import math
from typing import NamedTuple

import numpy as np

from ...clock import OPTIMISE
from ...families import FitsQuadratic, MeanField
from ...host_draws import spread_pairs
from ...points import Points
from ...recorder import Answer, Recorder
from ..finite_start import NARROW, finite_start
from ..fixed_draws import Climb, Climbed, climb
from ..mode import Mode, find_mode
from ..newton import Curved

DRAWS = 32
# How often a start around the mode is narrowed, each time by half, until its ELBO is finite.
NARROWINGS = 6


class Found(NamedTuple):
    """The winner, which start it came from, what the others reached, and the iterations of all."""

    answer: Answer
    name: str
    others: dict[str, float]
    steps: int
    mode: Mode | None


def compete(points: Points, start: MeanField, recorder: Recorder, how: Climb, *, curved: bool) -> Found:
    """Climb from every start and keep the best by the judge's draws; `curved` allows for Hessians."""
    rng = recorder.rng("starts")
    start = finite_start(points, start, rng, recorder)
    e = spread_pairs(start.base, DRAWS // 2, start.dim, rng)
    first = climb(points, start, e, how, recorder)
    mode = find_mode(points, start, recorder, rng) if curved else None
    found = {"the family's own start": first}
    around = None if mode is None else around_mode(start, mode, recorder)
    if around is not None:
        assert isinstance(around.q, MeanField)
        name, second = "the mode with its curvature", around.q
    else:
        name, second = "a narrow start", _narrow(start)
    rival = Answer(first.q, first.steps, first.terms)
    found[name] = climb(points, second, e, how, recorder, step=first.steps, rival=rival)
    steps = found[name].steps
    winner = max(found, key=lambda n: _height(found[n]))
    best = found[winner]
    others = {n: c.terms.elbo for n, c in found.items() if n != winner}
    return Found(Answer(best.q, steps, best.terms), winner, others, steps, mode)


def around_mode(q: FitsQuadratic, mode: Mode, recorder: Recorder) -> Curved | None:
    """The member of q's family that suits the mode; None if its ELBO is not finite however narrow."""
    with recorder.clock.phase(OPTIMISE):
        for narrowing in range(NARROWINGS):
            member = q.for_quadratic(mode.z, 4.0**narrowing * mode.precision)
            terms = recorder.terms(member)
            if math.isfinite(terms.elbo):
                return Curved(member, terms, 0)
    return None


def _narrow(start: MeanField) -> MeanField:
    return MeanField.of(np.asarray(start.loc), np.full(start.dim, NARROW), start)


def _height(climbed: Climbed) -> float:
    return climbed.terms.elbo if math.isfinite(climbed.terms.elbo) else -math.inf
