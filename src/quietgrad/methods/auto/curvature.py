"""Curvature in an automatic fit: Newton steps from the mode and from other starts, and what they leave.

For families that can be fitted to a quadratic, on all rows and in moderate dimensions.
"""

import math

import numpy as np
from jaxtyping import Float

from ...clock import OPTIMISE
from ...diagnostics.expected_gain import PAIRS, ExpectedGain, conclusive_gain, expected_gain
from ...families import AbstractFamily, FitsQuadratic, HasMoments
from ...host_draws import spread_pairs
from ...judging import Terms, paired
from ...points import Points
from ...recorder import Answer
from ...status import Status
from ..following import follow
from ..method import Ending
from ..mode import find_mode
from ..newton import MOST_DIM, Curved, newton, suits
from .stage import Runner
from .starts import around_mode

# Families without every covariance take Newton steps in at most so many coordinates: without and with
# correlations. Beyond, a climb and annealed steps get as far in less time than Hessians take.
CURVED_MEAN_FIELD, CURVED_LOW_RANK = 64, 256
# A mode at which the log density rises by so many nats over an sd of the fit is none, such as the neck
# of a funnel, where the density has no end as a scale goes to zero. A fit to it may be close to what is
# around it, and far below others.
STEEP = 0.5
# At the end of Newton steps come some more that average over so many times the draws, and forget most of
# what was averaged before. The noise of a curvature costs nats in proportion to its size, so there is a
# step for every other coordinate.
MORE_DRAWS, LEAST_MORE, MOST_MORE = (4, 16), 10, 48
# Pairs of draws that decide whether these steps are kept.
FRESH_PAIRS = 512
REMEMBERED = 4
# Nats that a step may promise then, in all and for each coordinate. In one coordinate, 0.03 nats are a
# quarter of an sd.
PROMISE, PROMISE_EACH = 0.02, 0.005
# The share of a gain worth going on for that a climb at rest may leave, and the pairs of draws in a
# group that are asked first.
AT_REST, FEW_PAIRS = 0.5, 16
# How often, at most, two whole steps follow a slope that remains.
FOLLOWED = 16


def worth_newton(run: Runner, points: Points, q: AbstractFamily) -> bool:
    """Whether Newton steps are worth it."""
    if not run.fixed_draws or run.problem.batch_size is not None or not isinstance(q, FitsQuadratic):
        return False
    few = q.any_covariance or q.dim <= (CURVED_LOW_RANK if q.correlated else CURVED_MEAN_FIELD)
    # Whether a target can be differentiated twice takes long to find out.
    return few and suits(points, q)


def from_mode(
    run: Runner,
    points: Points,
    around: AbstractFamily,
    q: AbstractFamily,
    rival: Curved | None = None,
) -> Curved | None:
    """Newton steps from the mode with its curvature, in q's family, where they are worth it.

    They give up where they would not catch up with a `rival`, to which other steps led.
    """
    if not worth_newton(run, points, q):
        return None
    return run.recorder.stage("mode", lambda: _from_mode(run, points, around, q, rival))


def _from_mode(
    run: Runner, points: Points, around: AbstractFamily, q: AbstractFamily, ahead: Curved | None
) -> Curved | None:
    recorder = run.recorder
    assert isinstance(q, FitsQuadratic)
    assert isinstance(around, HasMoments)
    if recorder.start is None:
        # What an ending is held against: the family's own start, not the mode.
        recorder.look(run.problem.q, 0)
    mode = find_mode(points, np.asarray(around.mean(), float), recorder, recorder.rng("mode"))
    start = None if mode is None else around_mode(q, mode, recorder)
    if mode is None or start is None:
        return None
    rival = None if ahead is None else Answer(ahead.q, ahead.steps, ahead.terms)
    recorder.tell_better(Answer(start.q, 0, start.terms), rival, recorder.steps)
    start = start._replace(steps=recorder.steps)
    found = newton(points, start, recorder, recorder.rng("newton from the mode"), rival=rival)
    if not _slope(points, found.q, mode.z) < STEEP:
        found = found._replace(rested=False)
    numbers = {"elbo": start.terms.elbo, "later": found.terms.elbo}
    run.note("mode", found.steps, run.first(found.q), float("nan"), **numbers)
    return found


def _slope(points: Points, q: AbstractFamily, z: Float[np.ndarray, " dim"]) -> float:
    """How steep the log density is at a point, in nats for an sd of q, along the steepest coordinate."""
    assert isinstance(q, FitsQuadratic)
    # On the host: `q.variance()` would compile a dozen programs.
    std = np.sqrt(np.sum(q.host_root() ** 2, axis=1))
    return float(np.max(np.abs(points(z[None])[1][0]) * std, initial=0.0))


def newton_from(
    run: Runner, points: Points, ahead: Curved | None, start: Curved | None = None
) -> tuple[Answer, Ending | None]:
    """Newton steps from a start, beside those from the mode; the ending if they lead to the top."""
    return run.recorder.stage("newton", lambda: _newton_from(run, points, ahead, start))


def _newton_from(
    run: Runner, points: Points, ahead: Curved | None, start: Curved | None
) -> tuple[Answer, Ending | None]:
    recorder, rng = run.recorder, run.recorder.rng("newton")
    begun, best = recorder.steps, ahead
    if start is not None:
        rival = None if ahead is None else Answer(ahead.q, ahead.steps, ahead.terms)
        found = newton(points, start._replace(steps=begun), recorder, rng, rival=rival)
        behind = ahead is not None and paired(found.terms, ahead.terms)[0] <= 0
        best = found if ahead is None or not behind else ahead._replace(steps=found.steps)
    assert best is not None
    best, left = _refined(run, points, best, rng)
    led = follow(points, best, left, recorder, rng, rounds=FOLLOWED)
    if led.gained > run.gain:
        best, left = _refined(run, points, led.best._replace(precision=None, number=0), rng)
    answer = Answer(best.q, best.steps, best.terms)
    numbers = {"elbo": best.terms.elbo, "iterations": best.steps - begun}
    assert isinstance(best.q, FitsQuadratic)
    with recorder.clock.phase(OPTIMISE):
        left = conclusive_gain(left, points, best.q, rng, best.precision, worth=run.gain)
    done = left.below(run.gain) and led.level
    numbers |= {"left": left.nats, "left_error": left.error}
    kind = "newton stop" if done else "newton"
    run.note(kind, answer.step, run.first(answer.q), float("nan"), **numbers)
    return answer, (Status.CONVERGED, promise(left)) if done else None


def _refined(
    run: Runner, points: Points, best: Curved, rng: np.random.Generator
) -> tuple[Curved, ExpectedGain]:
    """More Newton steps with more draws as long as they promise something, and what is left.

    Late steps are short, as they average. If they still promise something they have averaged too soon:
    the next ones begin a new average. They average over more draws than the judge has, to which the best
    step so far owes its place; so fresh draws judge whether they are worse.
    """
    left, recorder, before = ExpectedGain(math.inf, 0.0), run.recorder, best
    steps = min(MOST_MORE, max(LEAST_MORE, best.q.dim // 2))
    for more_draws in MORE_DRAWS:
        again = more_draws != MORE_DRAWS[0]
        start = best._replace(number=min(best.number, REMEMBERED))
        start = start._replace(precision=None, number=0) if again else start
        how = {"gain": None, "most_steps": steps, "more_draws": more_draws, "judged": False}
        found = newton(points, start, recorder, rng, **how)
        precision = best.precision if found.precision is None else found.precision
        best = found._replace(steps=best.steps + steps, precision=precision)
        assert isinstance(best.q, FitsQuadratic)
        with recorder.clock.phase(OPTIMISE):
            left = expected_gain(points, best.q, rng, best.precision)
        if left.nats <= max(_little(best.q), 2 * left.error):
            break
    with recorder.clock.phase(OPTIMISE):
        gained, error = _compared(points, best.q, before.q, rng)
        if not gained >= -2 * error:
            best = before._replace(steps=best.steps)
            assert isinstance(best.q, FitsQuadratic)
            left = expected_gain(points, best.q, rng, best.precision)
    recorder.choose(Answer(best.q, best.steps, best.terms))
    return best, left


def _little(q: AbstractFamily) -> float:
    """Nats that may be left at the end of Newton steps, or of a climb."""
    return PROMISE + PROMISE_EACH * q.dim


def _compared(
    points: Points, a: AbstractFamily, b: AbstractFamily, rng: np.random.Generator
) -> tuple[float, float]:
    """a's ELBO minus b's at fresh pairs of draws, with its standard error."""
    e = spread_pairs(a.base, FRESH_PAIRS, a.base_dim, rng)

    def terms(q: AbstractFamily) -> Terms:
        assert isinstance(q, FitsQuadratic)
        z = q.host_transport(e)
        values = points(z)[0] - q.host_log_prob(e)
        pairs = 0.5 * (values[:FRESH_PAIRS] + values[FRESH_PAIRS:])
        return Terms(pairs, np.mean(z, axis=0), np.std(z, axis=0), bad=0)

    return paired(terms(a), terms(b))


def what_is_left(
    run: Runner, q: AbstractFamily, points: Points | None, pairs: int = PAIRS
) -> ExpectedGain | None:
    """What a Newton step would still gain, where that can be known: Gaussians on all rows."""
    if points is None or run.problem.batch_size is not None:
        return None
    if not isinstance(q, FitsQuadratic) or q.dim > MOST_DIM:
        return None

    def look() -> ExpectedGain:
        with run.recorder.clock.phase(OPTIMISE):
            return expected_gain(points, q, run.recorder.rng("left"), pairs=pairs)

    return run.recorder.stage("left", look)


def nothing_left(run: Runner, points: Points, answer: Answer) -> Ending | None:
    """The ending of a climb that came to rest, if fresh draws see nothing worth going on for.

    What a climb at fixed draws can be wrong about is these draws.
    """
    little = min(AT_REST * run.gain, _little(answer.q))
    for pairs in (FEW_PAIRS, PAIRS):
        left = what_is_left(run, answer.q, points, pairs)
        if left is None or left.nats - 2 * left.error > little:
            return None
        if left.below(little):
            numbers = {"left": left.nats, "left_error": left.error}
            run.note("climb stop", answer.step, run.first(answer.q), float("nan"), **numbers)
            return Status.CONVERGED, promise(left)
    return None


def promise(left: ExpectedGain) -> str:
    """In words."""
    if not math.isfinite(left.nats):
        return "the gradient is not finite at some fresh draws, so what is left to gain is unknown"
    return f"a further Newton step promises {left.nats:.3f} ± {left.error:.3f} nats"
