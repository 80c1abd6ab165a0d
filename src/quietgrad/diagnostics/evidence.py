"""What is found out about a fit: importance weights, short chains, climbs from afar, and far tails.

Everything goes through the compiled program that values and gradients come from. The parts share one
budget of gradients, smaller where rows or coordinates are many.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..evaluation.difference import UNKNOWN, Difference
from ..evaluation.points import Points
from ..families import AbstractFamily, HasMoments
from ..targets import Target
from .chains import Chains, Sampler
from .climbs import climb, far_starts
from .comparison import Comparison, by_chains, by_weights, unknown
from .draws import Draws, draw
from .expected_gain import gain_at
from .metric import Metric, metric_of
from .modes import Elsewhere, elsewhere, two_modes
from .propriety import LogDensityProbe, Ray, Tail, flattest, slow_tails
from .psis import Weights, smooth
from .shapes import Shapes, shapes_of
from .tolerance import combine, off, plain
from .watched import Watched

# Chains from q's draws, chains from far climbs, trial steps of the climbs.
CHAINS, SCOUTS, TRIALS = 96, 32, 40
# Leapfrog steps of each round of chains; the next one runs if the last left a question open.
LEAPFROGS = (24, 24, 48, 96, 192)
# Numbers (rows times coordinates, times gradients) that a diagnosis may touch, and its least gradients.
WORK, LEAST_GRADIENTS = 2**32, 3000
# Errors below which chains have settled well enough to tell another mode from a ridge.
SETTLED = 0.25
# Coordinates and directions along which tails are looked at, the widest first, and numbers for them.
AXES, WIDEST, NUMBERS = 48, 4, 2**22
# A flow whose sd is below this share of the posterior's, with weights of a k-hat above this, has left
# something out that its draws and chains from them do not get to.
FOLLOWED, NO_VARIANCE = math.log(0.88), 0.5


class Evidence(NamedTuple):
    """The findings; `best` joins the two comparisons, number by number of those that are watched.

    `flow` says that q bends, and so follows whatever its draws have seen.
    Where most draws are not finite there is nothing beyond them.
    """

    draws: Draws
    weights: Weights
    watched: Watched
    weighted: Comparison
    moved: Comparison
    gain: Difference
    gradients: int
    tails: tuple[tuple[Ray, Tail], ...] = ()
    elsewhere: Elsewhere | None = None
    modes: tuple[np.ndarray, np.ndarray] | None = None
    shapes: Shapes = Shapes()
    flow: bool = False

    @property
    def best(self) -> Comparison:
        """What is known of q's errors."""
        return combine(self.moved, self.weighted)

    @property
    def neck(self) -> int | None:
        """The coordinate in which a flow is narrow though it could have followed.

        In a neck, where the scale of other coordinates shrinks, chains of one step size do not get far,
        and what they say of its sd is a lower bound.
        """
        ratio = self.best.log_ratio[: self.watched.dim]
        narrow = self.flow and self.weights.khat > NO_VARIANCE and np.min(ratio) < FOLLOWED
        return int(np.argmin(ratio)) if narrow else None


def gather(target: Target, q: AbstractFamily, rng: np.random.Generator, draws: int) -> Evidence:
    """All evidence that the budget allows."""
    points = Points(target, q.dtype)
    budget = max(LEAST_GRADIENTS, WORK // max(1, target.rows * q.dim))
    drawn = draw(q, points, rng, min(draws, budget // 3))
    weights = smooth(drawn.log_weights)
    watched = Watched(target, q.dtype, drawn.z)
    numbers = watched(drawn.z)
    weighted = by_weights(numbers, weights)
    if drawn.bad_share > 0.5:
        nothing = unknown(numbers.shape[1]), UNKNOWN
        return Evidence(drawn, weights, watched, weighted, *nothing, points.gradients)
    metric = metric_of(drawn)
    main, scouts, moved = _run_chains(points, drawn, metric, watched, weighted, rng, budget)
    settled = np.maximum(moved.shift_error, moved.log_ratio_error) < SETTLED
    std = np.where(settled, np.std(numbers, axis=0) * np.exp(-moved.log_ratio), math.inf)[: q.dim]
    axes = axes_of(metric, drawn.slope[drawn.finite])
    probe = LogDensityProbe(target, q.dtype, lambda z: points(z)[0], points)
    return Evidence(
        drawn,
        weights,
        watched,
        weighted,
        moved,
        gain_at(q, drawn, metric),
        points.gradients,
        tails=tuple(slow_tails(probe, metric.center, metric.std, axes)),
        elsewhere=elsewhere(points, main, scouts, metric, std),
        modes=two_modes(points, metric, scouts.start),
        shapes=shapes_of(main.late().reshape(-1, q.dim), metric),
        flow=not isinstance(q, HasMoments),
    )


def axes_of(
    metric: Metric, gradients: Float[np.ndarray, "draws dim"] | None = None
) -> Float[np.ndarray, "axes dim"]:
    """Axes of one posterior sd along which the tails are looked at.

    The widest coordinates, the widest directions of a dense metric, and the flattest ones by the
    gradients: the difference of two intercepts lies between the coordinates, and a metric made of
    averages has it only roughly.
    """
    std, dim = metric.std, metric.center.size
    widest = np.argsort(-std)[: max(1, min(AXES, NUMBERS // dim))]
    axes = [np.zeros((widest.size, dim))]
    axes[0][np.arange(widest.size), widest] = std[widest]
    if metric.dense and dim > 1:
        values, vectors = np.linalg.eigh(metric.covariance / np.outer(std, std))
        axes.append(vectors[:, np.argsort(-values)[:WIDEST]].T * std)
    if gradients is not None and len(gradients) >= dim > 1:
        axes.append(flattest(gradients, std))
    return np.concatenate(axes)


def _run_chains(
    points: Points,
    drawn: Draws,
    metric: Metric,
    watched: Watched,
    weighted: Comparison,
    rng: np.random.Generator,
    budget: int,
) -> tuple[Chains, Chains, Comparison]:
    """Chains from draws of q and from far climbs, until the former leave no question open."""
    ends, heights = climb(points, metric, far_starts(metric, rng, SCOUTS), TRIALS)
    ends[~np.isfinite(heights)] = metric.center
    rows = rng.permutation(np.flatnonzero(drawn.finite))[:CHAINS]
    count, numbers = len(rows), watched(drawn.z)
    sampler = Sampler(points, metric, np.concatenate([drawn.z[rows], ends]), rng)
    chains = sampler.run(LEAPFROGS[0] * (count + SCOUTS))
    moved = by_chains(numbers, watched.along(chains.some(slice(0, count))))
    for number, leapfrogs in enumerate(LEAPFROGS[1:]):
        found = combine(moved, weighted)
        # A fit that is far off gets a second round all the same: states show their shape by then.
        young = number == 0 and any(map(np.any, off(found)))
        if (plain(found) and not young) or points.gradients > budget:
            break
        chains = sampler.run(leapfrogs * (count + SCOUTS))
        moved = by_chains(numbers, watched.along(chains.some(slice(0, count))))
    return chains.some(slice(0, count)), chains.some(slice(count, None)), moved
