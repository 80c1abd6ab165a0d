"""What is found out about a fit: importance weights, short chains, climbs from afar, and far tails.

Everything goes through the compiled program that values and gradients come from. The parts share one
budget of seconds and gradients. Where it is short they become smaller; what is left out is listed.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..evaluation.elbo_terms import UNKNOWN, Difference
from ..evaluation.points import Points
from ..families import AbstractFamily, EstimatesDensity, HasMoments, ScalesFollow
from ..targets import Target
from .budget import Budget
from .cells import Cells, by_cells, nearest, within
from .chains import Chains, Sampler
from .charts import PlainChart, chart_of
from .climbs import climb, far_starts, spread_out
from .comparison import Comparison, by_chains, by_weights, unknown
from .draws import Draws, draw
from .expected_gain import gain_at
from .long_chains import Begun, ChainDraws
from .metric import Metric, metric_of
from .modes import Elsewhere, elsewhere, separate_modes, stays_away
from .propriety import LogDensityProbe, Ray, Tail, flattest, slow_tails
from .psis import Weights, smooth
from .settings import DEFAULT, Diagnostics
from .shapes import Shapes, shapes_of
from .tolerance import combine, contradicted, off, plain
from .watched import Watched

# A climb remembers so many vectors for each number of a state, and a chain has so many states at hand.
CLIMB_ARRAYS, CHAIN_ARRAYS = 24, 8


class Evidence(NamedTuple):
    """The findings; `best` joins the two comparisons, number by number of those that are watched.

    `missed` are places that q leaves out. `modes` are several ones between which the density dips, if
    there are; `cells` what chains say that do not cross between them. `flow` says that q bends, and so
    follows whatever its draws have seen. `unseen` is what there was no time for and without which
    nothing can be trusted, `further` what more time would be spent on. `begun` are the chains from q's
    draws, as they can be continued, and `chain_draws` what came of that.
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
    missed: tuple[Elsewhere, ...] = ()
    modes: Float[np.ndarray, "modes dim"] | None = None
    cells: Cells | None = None
    shapes: Shapes = Shapes()
    flow: bool = False
    settings: Diagnostics = DEFAULT
    unseen: tuple[str, ...] = ()
    further: tuple[str, ...] = ()
    begun: Begun | None = None
    chain_draws: ChainDraws | None = None

    @property
    def elsewhere(self) -> Elsewhere | None:
        """The heaviest place that q leaves out; None if there is none."""
        return self.missed[0] if self.missed else None

    @property
    def best(self) -> Comparison:
        """What is known of q's errors."""
        return _joined(self.moved, self.weighted, self.weights, self.settings)

    @property
    def flat(self) -> bool:
        """Whether importance weights are all but equal: q is the posterior wherever its draws are."""
        share = self.weights.effective / self.draws.log_q.size
        return self.weights.usable and share > self.settings.flat_weights

    @property
    def covers(self) -> bool:
        """Whether q has the modes that were found by their mass.

        Weights are all but equal and it has draws around each of them; or chains from its draws, which
        do not cross between them, leave it as it is in each.
        """
        if self.modes is None or self.elsewhere is not None:
            return False
        if self.cells is not None and self.cells.agree(self.settings):
            return True
        own = nearest(self.draws.z, self.modes, within(self.draws, self.modes, self.settings))
        counts = np.bincount(own, minlength=len(self.modes))
        return self.flat and bool(np.min(counts) >= self.settings.flat_draws)

    @property
    def neck(self) -> int | None:
        """The coordinate in which a flow is narrow though it could have followed.

        In a neck, where the scale of other coordinates shrinks, chains of one step size do not get far,
        and what they say of its sd is a lower bound.
        """
        settings, ratio = self.settings, self.best.log_ratio[: self.watched.dim]
        heavy = self.weights.khat > settings.no_variance
        heavy = heavy and not even(self.weights, settings)
        narrow = self.flow and heavy and np.min(ratio) < settings.followed
        return int(np.argmin(ratio)) if narrow else None


def even(weights: Weights, settings: Diagnostics = DEFAULT) -> bool:
    """Whether weights are so equal that no sd of q can be below the share r a flow may be narrow by.

    A Gaussian that is narrower than r in one direction has draws worth at most exp(-(1 - r^2)^2 / 2) of
    as many of the posterior. The shape of the tail of such weights is that of their rounding.
    """
    share = weights.effective / max(1, weights.w.size)
    return weights.usable and share > math.exp(-0.5 * (1 - math.exp(2 * settings.followed)) ** 2)


def _joined(
    moved: Comparison, weighted: Comparison, weights: Weights, settings: Diagnostics
) -> Comparison:
    """Chains first, but weights that are all but equal before those."""
    if even(weights, settings):
        return weighted.sharper(moved, mean=settings.sharp_mean, scale=settings.sharp_scale)
    return combine(moved, weighted, settings)


def gather(
    target: Target,
    q: AbstractFamily,
    rng: np.random.Generator,
    draws: int,
    settings: Diagnostics = DEFAULT,
    budget: Budget | None = None,
) -> Evidence:
    """All evidence that the budget allows; without one, as much as gradients allow."""
    points = Points(target, q.dtype)
    budget = Budget() if budget is None else budget
    work = settings.work // max(1, target.rows * q.dim)
    budget.gradients = max(settings.least_gradients, work)
    budget.stage("draws of q")
    drawn = draw(q, points, rng, min(draws, budget.gradients // 3), settings, budget)
    weights = smooth(drawn.log_weights)
    watched = Watched(target, q.dtype, drawn, rng, settings)
    numbers = watched(drawn.z)
    weighted = by_weights(numbers, weights)
    found = Evidence(
        drawn, weights, watched, weighted, unknown(numbers.shape[1]), UNKNOWN, 0, settings=settings
    )
    if drawn.bad_share > settings.hopeless:
        return found._replace(gradients=points.gradients)
    metric = metric_of(drawn, settings)
    found = found._replace(gain=gain_at(q, drawn, metric), flow=not isinstance(q, HasMoments))
    run = _run_chains(target, q, points, found, metric, rng, budget)
    if run is not None:
        found = _from_chains(found, points, q, metric, run, rng)._replace(begun=run.begun)
    budget.stage("far tails")
    axes = axes_of(metric, drawn.slope[drawn.finite], settings)
    # Three values on either side of an axis, and room for a second look along a few.
    each = 2 * 3 + 8
    count = int(len(axes) * budget.share(each * len(axes)))
    if count < len(axes):
        (budget.further if count else budget.unseen).append("the far tails of more coordinates")
    probe = LogDensityProbe(target, q.dtype, lambda z: points(z)[0], points)
    tails = slow_tails(probe, metric.center, metric.std, axes[:count]) if count else []
    return found._replace(
        tails=tuple(tails),
        gradients=points.gradients,
        unseen=tuple(budget.unseen),
        further=tuple(budget.further),
    )


class _Run(NamedTuple):
    """Chains from q's draws and from far climbs, separate modes, what the former say, the metric in
    which they moved, and where they are."""

    main: Chains
    scouts: Chains
    modes: Float[np.ndarray, "modes dim"]
    moved: Comparison
    cells: Cells | None
    metric: Metric
    begun: Begun | None


def _from_chains(
    found: Evidence,
    points: Points,
    q: AbstractFamily,
    metric: Metric,
    run: _Run,
    rng: np.random.Generator,
) -> Evidence:
    """What chains say of other modes and of the posterior's shape."""
    settings, watched, moved = found.settings, found.watched, run.moved
    chosen, dim = watched.coordinates, watched.dim
    settled = np.maximum(moved.shift_error, moved.log_ratio_error)[:dim] < settings.settled
    own = np.std(found.draws.z[:, chosen], axis=0) * np.exp(-moved.log_ratio[:dim])
    std = np.where(settled, own, math.inf)
    some = metric.some(chosen) if watched.selected else metric
    main, scouts = run.main.columns(dim), run.scouts.columns(dim)
    places = stays_away(points, main, scouts, some, std, settings)
    several, reached = run.modes if len(run.modes) > 1 else None, (main.z[-1], main.values[-1])
    if several is not None:
        # Of these only the mass that q leaves out is known, which takes a Gaussian there.
        own_modes = [] if run.cells is None else list(run.cells.modes)
        others = [mode for mode in several if not any(np.array_equal(mode, one) for one in own_modes)]
        places += [Elsewhere(mode, -math.inf) for mode in others[: settings.candidates]]
    return found._replace(
        moved=moved,
        cells=run.cells,
        missed=tuple(elsewhere(points, q, found.draws, run.metric, places, reached, rng, settings)),
        modes=several,
        shapes=_shapes(watched, main, metric, settings),
    )


def _shapes(watched: Watched, main: Chains, metric: Metric, settings: Diagnostics) -> Shapes:
    """Shapes among all coordinates, or among those most strongly coupled."""
    states, most = main.late().reshape(-1, watched.dim), settings.shape_coordinates
    if watched.whole <= most and not watched.selected:
        return shapes_of(states, metric, settings)
    # States hold all coordinates in their order, or those of a selection in its own.
    first = watched.coordinates[:most] if watched.selected else watched.coupled[:most]
    places = np.arange(first.size) if watched.selected else first
    return shapes_of(states[:, places], metric.some(first), settings).at(first)


def axes_of(
    metric: Metric,
    gradients: Float[np.ndarray, "draws dim"] | None = None,
    settings: Diagnostics = DEFAULT,
) -> Float[np.ndarray, "axes dim"]:
    """Axes of one posterior sd along which the tails are looked at.

    The widest coordinates, the widest directions of a dense metric, and the flattest ones by the
    gradients: the difference of two intercepts lies between the coordinates, and a metric made of
    averages has it only roughly.
    """
    std, dim = metric.std, metric.center.size
    widest = np.argsort(-std)[: max(1, min(settings.axes, settings.axis_numbers // dim))]
    axes = [np.zeros((widest.size, dim))]
    axes[0][np.arange(widest.size), widest] = std[widest]
    if metric.dense and dim > 1:
        values, vectors = np.linalg.eigh(metric.covariance / np.outer(std, std))
        axes.append(vectors[:, np.argsort(-values)[: settings.widest]].T * std)
    if gradients is not None and len(gradients) >= dim > 1:
        axes.append(flattest(gradients, std))
    return np.concatenate(axes)


def _run_chains(
    target: Target,
    q: AbstractFamily,
    points: Points,
    begun: Evidence,
    metric: Metric,
    rng: np.random.Generator,
    budget: Budget,
) -> _Run | None:
    """Chains from draws of q and from far climbs, until the former leave no question open.

    None if there is no time for the least of them. Where weights are all but equal, chains only have to
    tell other modes, and move in the target's coordinates, for which there is a program.
    """
    drawn, watched, weights, settings = begun.draws, begun.watched, begun.weights, begun.settings
    if isinstance(q, ScalesFollow) and watched.selected and even(weights, settings):
        # Among so many locals no chain in the target's coordinates mixes, and weights have decided.
        budget.further.append("short chains from q's draws and climbs to other modes")
        return None
    count, far = _sizes(drawn, settings, budget)
    if not count:
        budget.unseen.append("short chains from q's draws and climbs to other modes")
        return None
    budget.stage("climbs to other modes")
    starts = far_starts(metric, rng, far, settings)
    if not isinstance(q, HasMoments):
        # It can have modes of its own, which are not always met from afar.
        starts = np.concatenate([starts, spread_out(drawn, rng, settings.own_climbs)])
    with budget.paced(len(starts) * settings.trials):
        climbed = climb(points, metric, starts, settings.trials, settings)
    climbed.ends[~np.isfinite(climbed.heights)] = metric.center
    ends, modes = climbed.ends[:far], separate_modes(points, metric, climbed, settings)
    if len(modes) > 1:
        metric = within(drawn, modes, settings)
        rows = _starts(drawn, nearest(drawn.z, modes, metric), rng, count, settings)
    else:
        rows = rng.permutation(np.flatnonzero(drawn.finite))[:count]
    count, numbers = len(rows), watched(drawn.z)
    at_home = watched.selected or even(weights, settings)
    chart = PlainChart(points) if at_home else chart_of(target, q, points, rng)
    start = np.concatenate([chart.of_draws(drawn)[rows], chart.of_points(ends)])
    scales, keep = chart.metric(metric), watched if watched.selected else None
    sampler = Sampler(chart, scales, start, rng, settings, keep)
    rounds = settings.leapfrogs

    def run(number: int) -> tuple[Chains, Comparison, Cells | None]:
        budget.stage(f"chains, round {number + 1} of at most {len(rounds)}")
        with budget.paced(rounds[number] * (count + far)):
            chains = sampler.run(rounds[number] * (count + far))
            main = chains.some(slice(0, count))
            along, cells = watched.along(main), None
            if len(modes) > 1 and not watched.selected and not isinstance(q, EstimatesDensity):
                cells = by_cells(q, drawn, numbers, main, along, modes, metric, settings)
            return chains, by_chains(numbers, along, settings) if cells is None else cells.whole, cells

    chains, moved, cells = run(0)
    for number in range(len(rounds) - 1):
        found = _joined(moved, begun.weighted, weights, settings)
        # A fit that is far off gets a second round all the same: states show their shape by then.
        young = number == 0 and any(map(np.any, off(found, settings)))
        decided = plain(found, settings) and not contradicted(found, moved, settings)
        if (decided and not young) or points.gradients > budget.gradients:
            break
        ahead = rounds[number + 1] * (count + far)
        if budget.share(ahead, of=1 - settings.tails_share) < 1:
            if not decided:
                budget.further.append("longer chains, with smaller errors")
            break
        chains, moved, cells = run(number + 1)
    main, scouts = chains.some(slice(0, count)), chains.some(slice(count, None))
    last = None if watched.selected else Begun(chart, scales, sampler.states[-1][:count])
    return _Run(main, scouts, modes, moved, cells, metric, last)


def _starts(
    drawn: Draws,
    cells: Int[np.ndarray, " draws"],
    rng: np.random.Generator,
    count: int,
    settings: Diagnostics,
) -> Int[np.ndarray, " rows"]:
    """Rows of draws at which chains begin: some in each cell, the others at random."""
    rows = rng.permutation(np.flatnonzero(drawn.finite))
    numbers, own = np.unique(cells[rows], return_inverse=True)
    each = min(settings.mode_chains, count // len(numbers))
    first = np.concatenate([np.flatnonzero(own == cell)[:each] for cell in range(len(numbers))])
    return np.concatenate([rows[first], np.delete(rows, first)])[:count]


def _sizes(drawn: Draws, settings: Diagnostics, budget: Budget) -> tuple[int, int]:
    """Chains from q's draws and from far climbs for which there are memory and time; zero if neither."""
    dim = drawn.z.shape[1]
    rounds, trials = settings.leapfrogs[0], settings.trials
    room = settings.most_numbers // dim
    count = min(settings.chains, max(settings.least_chains, room // CHAIN_ARRAYS))
    far = min(settings.scouts, max(settings.least_scouts, room // CLIMB_ARRAYS))
    needed = rounds * (count + far) + trials * far
    share = budget.share(needed, of=1 - settings.tails_share)
    if share >= 1:
        return count, far
    least = min(count, settings.least_chains), min(far, settings.least_scouts)
    fewer = max(least[0], int(share * count)), max(least[1], int(share * far))
    # Where one of them is at its least, the other one's share may be too much.
    for count, far in (fewer, least):
        if budget.affords(rounds * (count + far) + trials * far):
            return count, far
    return 0, 0
