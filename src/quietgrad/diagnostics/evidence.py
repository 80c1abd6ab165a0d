"""What is found out about a fit: importance weights, short chains, climbs from afar, and far tails.

Everything goes through the compiled program that values and gradients come from. The parts share one
budget of gradients, smaller where rows or coordinates are many.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..families import AbstractFamily
from ..points import Points
from ..targets import Target
from .chains import Sampler
from .climbs import climb, far_starts
from .comparison import Comparison, by_chains, by_weights, unknown
from .draws import Draws, draw
from .expected_gain import ExpectedGain, gain_at
from .metric import Metric, metric_of
from .modes import Elsewhere, elsewhere
from .psis import Weights, smooth
from .shapes import Shapes, shapes_of
from .tails import Tail, slow_tails

# Chains from q's draws, chains from far climbs, trial steps of the climbs.
CHAINS, SCOUTS, TRIALS = 96, 32, 40
# Leapfrog steps of a round of chains, and most rounds.
LEAPFROGS, ROUNDS = 24, 4
# Numbers (rows times coordinates, times gradients) that a diagnosis may touch, and its least gradients.
WORK, LEAST_GRADIENTS = 2**31, 3000
# Tolerances, in posterior sds and in log sd, and the errors at which they are plain: an estimate is
# called off beyond a tolerance by noise in less than one of a thousand coordinates.
MEAN_OFF, NARROW, WIDE, SIGNIFICANT = 0.2, -0.28, 0.22, 3.3
SHARP_MEAN, SHARP_SCALE = 0.1, 0.12


class Evidence(NamedTuple):
    """The findings; `best` joins the two comparisons, coordinate by coordinate."""

    draws: Draws
    weights: Weights
    metric: Metric | None
    weighted: Comparison
    moved: Comparison
    gain: ExpectedGain
    tails: list[Tail]
    elsewhere: Elsewhere | None
    shapes: Shapes
    acceptance: float
    gradients: int

    @property
    def best(self) -> Comparison:
        """What is known of q's errors."""
        return combine(self.moved, self.weighted)


def gather(target: Target, q: AbstractFamily, rng: np.random.Generator, draws: int) -> Evidence:
    """All evidence that the budget allows."""
    points = Points(target, q.dtype)
    budget = max(LEAST_GRADIENTS, WORK // max(1, target.rows * q.dim))
    drawn = draw(q, points, rng, min(draws, budget // 3))
    weights = smooth(drawn.log_weights)
    weighted = by_weights(drawn.z, weights)
    if drawn.bad_share > 0.5:
        gain = ExpectedGain(math.inf, 0.0)
        return Evidence(
            drawn,
            weights,
            None,
            weighted,
            unknown(q.dim),
            gain,
            [],
            None,
            Shapes(),
            0.0,
            points.gradients,
        )
    metric = metric_of(drawn)
    gain = gain_at(q, drawn, metric)
    tails = slow_tails(points, metric)
    ends, heights = climb(points, metric, far_starts(metric, rng, SCOUTS), TRIALS)
    ends[~np.isfinite(heights)] = metric.center
    rows = rng.permutation(np.flatnonzero(drawn.finite))[:CHAINS]
    sampler = Sampler(points, metric, np.concatenate([drawn.z[rows], ends]), rng)
    for number in range(ROUNDS):
        chains = sampler.run(LEAPFROGS * (len(rows) + SCOUTS) * (1 if number < 2 else 2))
        main = chains.some(slice(0, len(rows)))
        moved = by_chains(drawn.z, main)
        if plain(combine(moved, weighted)) or points.gradients > budget:
            break
    settled = np.isfinite(moved.shift_error) & np.isfinite(moved.log_ratio_error)
    found = elsewhere(main, chains.some(slice(len(rows), None)), metric, settled)
    states = main.late().reshape(-1, q.dim)
    return Evidence(
        drawn, weights, metric, weighted, moved, gain, tails, found, shapes_of(states, metric),
        chains.acceptance, points.gradients,
    )  # fmt: skip


def combine(moved: Comparison, weighted: Comparison) -> Comparison:
    """What chains say where they say it sharply; elsewhere the sharper of the two.

    Chains come first because weights of a q that is too narrow underestimate scales, and their own error,
    without a sign of it in k-hat.
    """
    return moved.sharper(weighted, mean=SHARP_MEAN, scale=SHARP_SCALE)


def off(found: Comparison) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
    """Which means, and which scales, are off beyond tolerance and noise (as truth values)."""
    mean = np.abs(found.shift) > np.maximum(MEAN_OFF, SIGNIFICANT * found.shift_error)
    beyond = (found.log_ratio < NARROW) | (found.log_ratio > WIDE)
    return mean, beyond & (np.abs(found.log_ratio) > SIGNIFICANT * found.log_ratio_error)


def unsure(found: Comparison) -> tuple[np.ndarray, np.ndarray]:
    """Which means, and which scales, the estimates leave open."""
    mean = (found.shift_error > SHARP_MEAN) | (np.abs(found.shift) > MEAN_OFF)
    scale = (found.log_ratio_error > SHARP_SCALE) | (found.log_ratio < NARROW) | (found.log_ratio > WIDE)
    wrong = off(found)
    return mean & ~wrong[0], scale & ~wrong[1]


def plain(found: Comparison) -> bool:
    """Whether nothing is open, or something is plainly wrong."""
    return any(map(np.any, off(found))) or not any(map(np.any, unsure(found)))
