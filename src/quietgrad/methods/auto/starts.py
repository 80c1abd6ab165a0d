"""Where an automatic fit starts: several cheap starts compete, and the judge's draws decide.

Where Hessians can be had, Newton steps begin at the mode with its curvature. In any case the mean-field
ELBO is climbed at fixed draws from the family's own start, and from a narrow one where that went badly:
a narrow start finds the mode first and then widens, which is right where a density explodes far out. The
mode misleads where scales are hierarchical, the climb where coordinates are nearly dependent; so both
run.
"""

import math
from typing import NamedTuple

import numpy as np

from ...clock import OPTIMISE
from ...families import FitsQuadratic, MeanField
from ...host_draws import levelled_pairs
from ...judging import paired
from ...points import Points
from ...recorder import Answer, Recorder
from ..finite_start import NARROW, finite_start
from ..fixed_draws import Climb, Climbed, climb
from ..mode import Mode
from ..newton import Curved

# Fixed draws, fewer where they would be more numbers than this.
DRAWS, LEAST_PAIRS, NUMBERS = 32, 2, 2**20
OWN, GIVEN = "the family's own start", "the start that was given, or Newton steps,"
# Logarithm of the factor by which it is narrower where coordinates are many.
DRAWN_IN = 3.0
# Nats by which the ELBO at a climb's own draws may be too high where it rests.
OVERFIT = 2.0
# A climb that ends with a larger error of its ELBO has draws where the density explodes.
SURE = 10.0
# How often a start around the mode is narrowed, each time by half, until its ELBO is finite.
NARROWINGS = 6


class Found(NamedTuple):
    """The winner, which start it came from, what the others reached, the iterations of all, and whether
    the winner rests at what may be the top.
    """

    answer: Answer
    name: str
    others: dict[str, float]
    steps: int
    rested: bool


def compete(
    points: Points,
    start: MeanField,
    recorder: Recorder,
    how: Climb,
    *,
    ahead: Curved | None = None,
    given: bool = False,
    draw_in: bool = False,
) -> Found:
    """Climb from the start, and from a narrow one where that went badly, and keep the better one.

    `ahead` is where Newton steps from the mode led: a rival, if it is of the same family. One that the
    user gave, or that steps from it led to (`given`), is one in any case. With `draw_in` the start may
    be narrower than what was given.
    """
    rng = recorder.rng("starts")
    start = finite_start(points, start, rng, recorder)
    start = _drawn_in(start, recorder) if draw_in else start
    pairs = max(LEAST_PAIRS, min(DRAWS // 2, NUMBERS // (2 * start.dim)))
    e = levelled_pairs(start.base, pairs, start.dim, rng)
    if ahead is not None:
        rival, alike = Answer(ahead.q, ahead.steps, ahead.terms), type(ahead.q) is type(start)
        give_up = alike or given
        first = climb(points, start, e, how, recorder, step=ahead.steps, rival=rival, give_up=give_up)
        others = {GIVEN if given else "Newton steps from the mode": ahead.terms.elbo}
        return Found(
            Answer(first.q, first.steps, first.terms), OWN, others, first.steps, _at_rest(first)
        )
    first = climb(points, start, e, how, recorder)
    if first.terms.error < SURE:
        return Found(Answer(first.q, first.steps, first.terms), OWN, {}, first.steps, _at_rest(first))
    rival = Answer(first.q, first.steps, first.terms)
    second = climb(points, _narrow(start), e, how, recorder, step=first.steps, rival=rival)
    found = {OWN: first, "a narrow start": second}
    winner = max(found, key=lambda n: _height(found[n]))
    best = found[winner]
    others = {n: c.terms.elbo for n, c in found.items() if n != winner}
    answer = Answer(best.q, second.steps, best.terms)
    return Found(answer, winner, others, second.steps, _at_rest(best))


def narrower(start: MeanField) -> MeanField:
    """The start of a climb among many coordinates: narrower, because their noise adds up.

    A wide start of a network spends most of its climb on getting narrow, and may end where all
    weights are noise.
    """
    return MeanField.of(np.asarray(start.loc), np.asarray(start.log_std) - DRAWN_IN, start)


def _drawn_in(start: MeanField, recorder: Recorder) -> MeanField:
    """The narrower start, unless the judge finds it worse, as one that is close to the answer."""
    # An ending is held against the family's own start.
    own, inner = recorder.look(start, 0), narrower(start)
    with recorder.clock.phase(OPTIMISE):
        gained, _ = paired(recorder.terms(inner), own.terms)
    return inner if gained > 0 else start


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


def _at_rest(climbed: Climbed) -> bool:
    """Whether a climb rests where the draws it was made at have not clearly misled it."""
    return climbed.rested and not climbed.overfit - 2 * climbed.terms.error > OVERFIT


def _height(climbed: Climbed) -> float:
    return climbed.terms.elbo if math.isfinite(climbed.terms.elbo) else -math.inf
