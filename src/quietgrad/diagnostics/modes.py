"""Whether there is mass where q never looks: chains from far climbs that do not come back.

Climbs from far-away starts end at modes, and chains go on from there. A chain that stays away from
where q's chains are lives in another mode. Its mass, relative to q's, is estimated by its log density
and by the room in which it moves.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..evaluation.points import Points
from .chains import Chains
from .metric import Metric
from .settings import DEFAULT, Diagnostics


class Elsewhere(NamedTuple):
    """A place that q leaves out: its mean, its log mass relative to q's, climbs that led there."""

    place: Float[np.ndarray, " dim"]
    log_mass: float
    chains: int


def elsewhere(
    points: Points,
    chains: Chains,
    scouts: Chains,
    metric: Metric,
    std: Float[np.ndarray, " kept"],
    settings: Diagnostics = DEFAULT,
) -> Elsewhere | None:
    """The heaviest place where scouts stay and q's chains never are, if it matters.

    `std` are the posterior's scales as far as known, infinite where q's chains have not settled: on a
    ridge that they have not yet travelled, scouts are elsewhere without there being another mode. Nor is
    there one if the density does not dip on the way: the scouts are then still coming back. Chains,
    `metric` and `std` may be those of some coordinates only.
    """
    main, away = chains.late(), scouts.late()
    apart_by, whole = settings.apart, chains.averages().shape[1] / metric.center.size
    averages, places = np.mean(main, axis=0), np.mean(away, axis=0)
    center, spread = np.mean(averages, axis=0), np.std(averages, axis=0)
    std = np.maximum(np.maximum(std, metric.std), np.std(main, axis=(0, 1)))
    apart = np.abs(places - center) > np.maximum(apart_by * spread, settings.apart_std * std)
    far = np.flatnonzero(np.any(apart, axis=1))
    if not far.size:
        return None
    # The median, as a chain that never moves has no room at all.
    room = np.median(_log_room(main, metric))
    if not np.isfinite(room):
        return None
    heights = np.mean(scouts.late_values()[:, far], axis=0) - np.mean(chains.late_values())
    mass = heights + whole * (_log_room(away[:, far], metric) - room)
    middle, ends = np.mean(chains.averages(), axis=0), scouts.averages()
    for best in np.argsort(-mass)[: settings.candidates]:
        place, end = places[far[best]], ends[far[best]]
        if mass[best] > settings.matters and dips(points, middle, end, settings):
            near = np.all(np.abs(places[far] - place) <= np.maximum(apart_by * spread, std), axis=1)
            return Elsewhere(end, float(mass[best]), int(np.count_nonzero(near)))
    return None


def two_modes(
    points: Points,
    metric: Metric,
    ends: Float[np.ndarray, "climbs dim"],
    settings: Diagnostics = DEFAULT,
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]] | None:
    """Two places where climbs came to rest, both high, with a dip between them: q may cover both.

    The other place is the highest of those that are more than a posterior sd away from the top.
    """
    values, slope = points(ends)
    with np.errstate(invalid="ignore"):
        rest = np.isfinite(values) & (np.linalg.norm(metric.pull(slope), axis=1) < settings.resting)
    if not rest.any():
        return None
    ends, values = ends[rest], values[rest]
    top = int(np.argmax(values))
    distance = np.max(np.abs(ends - ends[top]) / metric.std, axis=1)
    others = np.flatnonzero((distance > 1) & (values > values[top] + settings.matters))
    if not others.size:
        return None
    other = int(others[np.argmax(values[others])])
    found = ends[top], ends[other]
    return found if dips(points, *found, settings) else None


def dips(
    points: Points,
    a: Float[np.ndarray, " dim"],
    b: Float[np.ndarray, " dim"],
    settings: Diagnostics = DEFAULT,
) -> bool:
    """Whether the log density falls below both ends somewhere between two points."""
    shares = np.linspace(0, 1, settings.between + 2)[:, None]
    values = points((1 - shares) * a + shares * b)[0]
    return bool(np.nanmin(values[1:-1]) < min(values[0], values[-1]) - settings.dip)


def _log_room(z: Float[np.ndarray, "moves chains dim"], metric: Metric) -> np.ndarray:
    """The log volume in which each chain moves, up to a constant; minus infinity if it does not."""
    moves, chains, dim = z.shape
    u = metric.whiten(z.reshape(-1, dim)).reshape(moves, chains, dim)
    with np.errstate(divide="ignore"):
        return np.sum(np.log(np.std(u, axis=0)), axis=1)
