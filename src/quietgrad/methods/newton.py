"""Newton steps: a Gaussian family fitted to the target's average gradient and curvature.

The ELBO of a Gaussian with mean m is stationary where E grad f = 0 and its precision is that part of
P = -E Hess f which the family can hold (Opper & Archambeau 2009). So: average gradient g and Hessian
over q, m <- m + rho P^-1 g, P <- (1 - rho) P - rho H, and q <- the family's best member for P. These are
natural-gradient steps of length rho (Khan & Lin 2017) with the solve that makes them exact on
quadratics. Steps shorten as 2/t, which averages the noise of the draws away; the judge keeps the best.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..clock import OPTIMISE
from ..families import AbstractFamily, FitsQuadratic
from ..host_draws import spread_pairs
from ..judging import Terms, paired
from ..points import Points
from ..recorder import Answer, Recorder
from .positive import newton_step, out_of, positive

# A dense Hessian, and as many of its products as there are dimensions, are for these at most.
MOST_DIM = 1000
# Hessian products of an iteration, twice as many of a late one, and the draws that they are spent on.
PRODUCTS, LEAST_DRAWS, MOST_DRAWS = 1000, 8, 32
GRADIENT_PAIRS = 32
FULL_STEPS, MOST_STEPS = 2, 24
# A family that holds only part of the correlations comes closer with every step, not at once.
FULL_STEPS_IN_PART = 8
# Early steps whose curvature had to be made positive stay full ones: it is not worth averaging.
CLIPPED_STEPS = 6
# A step that loses this many nats is tried again at this length.
LOSS, SHORTENED, LEAST_LENGTH = 5.0, 0.3, 1e-3
# Draws where something is not finite are pulled towards the mean by this factor, this often.
PULLED, PULLS = 0.3, 4
# Newton steps with a rival go on for this many, and while the gap is this many of their last gains.
LEAST_STEPS, CATCHING_UP = 4, 10
# Nats behind a rival at which it is the same answer, most likely.
LEVEL = 0.5


class Curved(NamedTuple):
    """The best member found, its terms, the iterations, and the average curvature they led to.

    `number` counts the steps that this average is made of; `rested` says that they gain no more.
    """

    q: AbstractFamily
    terms: Terms
    steps: int
    precision: Float[np.ndarray, "dim dim"] | None = None
    number: int = 0
    rested: bool = False


def suits(points: Points, q: AbstractFamily) -> bool:
    """Whether the family can be fitted to a quadratic, and the target has a Hessian that can be had."""
    if not isinstance(q, FitsQuadratic) or q.dim > MOST_DIM or not q.base.variance < math.inf:
        return False
    return points.has_curvature(q.dim)


def newton(
    points: Points,
    start: Curved,
    recorder: Recorder,
    rng: np.random.Generator,
    *,
    gain: float | None = 0.05,
    most_steps: int = MOST_STEPS,
    more_draws: int = 1,
    rival: Answer | None = None,
    judged: bool = True,
) -> Curved:
    """Steps until two in a row gain less than `gain` nats, or `most_steps`; answers are told on the way.

    A start that was led to by Newton steps goes on averaging with them; `more_draws` times as many
    gradients are taken then. Steps that have a `rival` give up when they would not catch up with it at
    their present pace. The best step is returned, or if they are not to be `judged` the last.
    """
    recorder.progress.stage = "Newton steps"
    q, best, waited, length = start.q, start, 0, 1.0
    assert isinstance(q, FitsQuadratic)
    precision, number, clipped = start.precision, start.number, False
    full_steps = FULL_STEPS_IN_PART if q.correlated and not q.any_covariance else FULL_STEPS
    for taken in range(1, most_steps + 1):
        with recorder.clock.phase(OPTIMISE):
            basis = q.host_root()
            gradient, hessian = _averages(points, q, basis, rng, more_draws)
            finite = np.all(np.isfinite(gradient)) and np.all(np.isfinite(hessian))
            if not finite or not np.any(np.diagonal(hessian)):
                break
            number = max(1, number + (not clipped or taken > CLIPPED_STEPS))
            rho = length * (1.0 if number <= full_steps else 2.0 / number)
            mixed = -hessian
            if precision is not None:
                mixed = (1 - rho) * (basis.T @ precision @ basis) - rho * hessian
            curvature = positive(mixed)
            clipped = curvature is not mixed
            center = np.asarray(q.mean(), float) + rho * newton_step(basis, curvature, gradient)
            whole = out_of(basis, curvature)
            trial = q.for_quadratic(center, whole)
            found = recorder.terms(trial)
            change, error = paired(found, best.terms)
            if change < -LOSS and length > LEAST_LENGTH:
                # Not from there: the same place again, with shorter steps.
                length *= SHORTENED
                q = best.q
                assert isinstance(q, FitsQuadratic)
                if precision is None:
                    precision = np.linalg.inv(q.host_covariance())
                recorder.check()
                continue
            precision, q = out_of(basis, mixed), trial
        waited = 0 if gain is None or change > gain + error else waited + 1
        if change > 0 or not judged:
            best = Curved(trial, found, start.steps + taken, whole, number)
        recorder.tell_better(Answer(best.q, best.steps, best.terms), rival, start.steps + taken)
        if waited >= 2 and number > full_steps:
            return best._replace(steps=start.steps + taken, precision=whole, number=number, rested=True)
        if rival is not None and taken >= LEAST_STEPS:
            behind, _ = paired(rival.terms, best.terms)
            if behind > CATCHING_UP * max(change, gain or 0.0) or 0 <= behind < LEVEL:
                break
    return best


def _averages(
    points: Points,
    q: AbstractFamily,
    basis: Float[np.ndarray, "dim dim"],
    rng: np.random.Generator,
    more_draws: int,
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, "dim dim"]]:
    """Gradient, and Hessian in the basis, of the log density over quasi-random pairs of q's draws.

    Where they are not finite, draws closer to the mean take their place.
    """
    assert isinstance(q, FitsQuadratic)
    products = PRODUCTS if more_draws == 1 else 2 * PRODUCTS
    pairs = max(LEAST_DRAWS, min(MOST_DRAWS, products // q.dim)) // 2
    some = spread_pairs(q.base, pairs, q.base_dim, rng)
    many = spread_pairs(q.base, more_draws * GRADIENT_PAIRS, q.base_dim, rng)
    gradient = hessian = np.full(q.dim, np.nan)
    for pull in range(PULLS + 1):
        _, hessian = points.curvature(q.host_transport(PULLED**pull * some), basis)
        values, slopes = points(q.host_transport(PULLED**pull * many))
        gradient = np.mean(slopes, axis=0)
        # Where the density is zero its gradient may well be finite.
        if all(np.all(np.isfinite(x)) for x in (values, gradient, hessian)):
            break
    return gradient, hessian
