"""Whether there is mass where q never looks: modes of far climbs, and chains from there that do not
come back.

Climbs from far-away starts end at modes, and chains go on from there. A chain that stays away from
where q's chains are may live in another mode. So do climbs that came to rest with a dip between them.
What matters is the mass around such a place that q leaves out (`local_mass.py`).
"""

import math
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float

from ..evaluation.points import Points
from ..families import AbstractFamily, EstimatesDensity
from .chains import Chains
from .climbs import Climbed
from .draws import Draws, log_prob_at
from .local_mass import Local, mass_around
from .metric import Metric
from .settings import DEFAULT, Diagnostics


class Elsewhere(NamedTuple):
    """A place that q leaves out: its mean, its log mass relative to q's, and the Gaussian there."""

    place: Float[np.ndarray, " dim"]
    log_mass: float
    gaussian: Local | None = None


def elsewhere(
    points: Points,
    q: AbstractFamily,
    drawn: Draws,
    metric: Metric,
    candidates: list[Elsewhere],
    reached: tuple[Float[np.ndarray, "states dim"], Float[np.ndarray, " states"]],
    rng: np.random.Generator,
    settings: Diagnostics = DEFAULT,
) -> list[Elsewhere]:
    """Those of some places around which q leaves out mass that matters, the heaviest first.

    `reached` are last states of chains from q's draws, with their log densities. Where q looks, but is
    poor, p / q is large at them too, and no place at which it is not larger is left out.
    What is known of a place beforehand counts where no Gaussian can be fitted to it: in very many
    coordinates, or if q's density is not known.
    """
    log_weights = drawn.log_weights[drawn.finite]
    log_z = float(np.asarray(scipy.special.logsumexp(log_weights))) - math.log(len(drawn.z))
    whole = reached[0].shape[1] == q.dim
    known = metric.dense and whole and not isinstance(q, EstimatesDensity)
    usual, elbo = -math.inf, float(np.mean(log_weights))
    if known and candidates:
        usual = float(np.max(reached[1] - log_prob_at(q, reached[0]))) - log_z

    def mass(place: Float[np.ndarray, " dim"]) -> Local | None:
        return mass_around(points, q, (log_z, elbo), place, metric, rng, settings, usual)

    found: list[Elsewhere] = []
    for one in candidates:
        if any(other.gaussian is not None and other.gaussian.has(one.place) for other in found):
            continue
        local = mass(one.place) if known else None
        if local is not None:
            one = Elsewhere(local.center, local.log_mass, local)
        again = any(other.gaussian is not None and other.gaussian.has(one.place) for other in found)
        if one.log_mass > settings.matters and not again:
            found.append(one)
    return sorted(found, key=lambda one: -one.log_mass)


def stays_away(
    points: Points,
    chains: Chains,
    scouts: Chains,
    metric: Metric,
    std: Float[np.ndarray, " kept"],
    settings: Diagnostics = DEFAULT,
) -> list[Elsewhere]:
    """Places where scouts stay and q's chains never are, the heaviest first.

    `std` are the posterior's scales as far as known, infinite where q's chains have not settled: on a
    ridge that they have not yet travelled, scouts are elsewhere without there being another mode. Nor is
    there one if the density does not dip on the way: the scouts are then still coming back. Chains,
    `metric` and `std` may be those of some coordinates only. The mass is a rough one, by the chain's log
    density and the room in which it moves.
    """
    main, away = chains.late(), scouts.late()
    apart_by, whole = settings.apart, chains.averages().shape[1] / metric.center.size
    averages, places = np.mean(main, axis=0), np.mean(away, axis=0)
    center, spread = np.mean(averages, axis=0), np.std(averages, axis=0)
    std = np.maximum(np.maximum(std, metric.std), np.std(main, axis=(0, 1)))
    apart = np.abs(places - center) > np.maximum(apart_by * spread, settings.apart_std * std)
    far = np.flatnonzero(np.any(apart, axis=1))
    if not far.size:
        return []
    # The median, as a chain that never moves has no room at all.
    room = np.median(_log_room(main, metric))
    if not np.isfinite(room):
        return []
    heights = np.mean(scouts.late_values()[:, far], axis=0) - np.mean(chains.late_values())
    mass = heights + whole * (_log_room(away[:, far], metric) - room)
    middle, ends = np.mean(chains.averages(), axis=0), scouts.averages()
    found = []
    for best in np.argsort(-mass)[: settings.candidates]:
        end = ends[far[best]]
        if mass[best] > settings.matters and dips(points, middle, end, settings):
            found.append(Elsewhere(end, float(mass[best])))
    return found


def separate_modes(
    points: Points,
    metric: Metric,
    climbed: Climbed,
    settings: Diagnostics = DEFAULT,
) -> Float[np.ndarray, "modes dim"]:
    """Places where climbs came to rest, all high, with a dip between any two of them, the highest first.

    They are more than a posterior sd away from each other.
    """
    rest = np.isfinite(climbed.heights) & (climbed.promises < settings.resting)
    ends, values = climbed.ends[rest], climbed.heights[rest]
    found: list[np.ndarray] = []
    for place in np.argsort(-values):
        if len(found) == settings.most_modes or values[place] < np.max(values) + settings.matters:
            break
        end = ends[place]
        distances = [np.max(np.abs(end - mode) / metric.std) for mode in found]
        if min(distances, default=math.inf) > 1 and all(
            dips(points, mode, end, settings) for mode in found
        ):
            found.append(end)
    return np.reshape(found, (len(found), ends.shape[1]))


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
