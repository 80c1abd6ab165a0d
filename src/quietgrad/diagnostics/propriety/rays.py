"""Rays from q's center to far away, and the tails of the log density along them."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .probe import LogDensityProbe, Values
from .settings import DEFAULT, Propriety
from .tail import Profile, Tail, suspicious, tail_of

# Parts of a direction that are named: those of at least this share of the largest, and how many.
TAKES_PART, SHOWN = 0.3, 3


class Ray(NamedTuple):
    """center + t step, where t = 1 is a span: `sds` sds of q."""

    center: Float[np.ndarray, " dim"]
    step: Float[np.ndarray, " dim"]
    sds: float

    def at(self, distances: Float[np.ndarray, " points"]) -> Float[np.ndarray, "points dim"]:
        """Points at these distances."""
        with np.errstate(over="ignore"):
            return self.center + distances[:, None] * self.step

    @property
    def coordinates(self) -> list[int]:
        """The coordinates that take part, most of them first."""
        size = np.abs(self.step) / np.max(np.abs(self.step))
        return [int(i) for i in np.argsort(-size, kind="stable") if size[i] > TAKES_PART]


def both_sides(
    center: Float[np.ndarray, " dim"],
    axis: Float[np.ndarray, " dim"],
    dtype: Any,
    settings: Propriety = DEFAULT,
) -> tuple[Ray, Ray]:
    """The two rays along an axis whose length is one sd of q.

    A span is far from zero as well, and at least one in the largest of the coordinates. Between
    coordinates it is no longer than that asks for, because their sums lose digits.
    """
    longest = float(np.max(np.abs(axis)))
    part = np.abs(axis) > TAKES_PART * longest
    share = 1.0 if np.count_nonzero(part) == 1 else settings.least_sds / settings.farthest(dtype)
    sds = max(share * longest, 1.0, float(np.max(np.abs(center[part])))) / longest
    return Ray(center, sds * axis, sds), Ray(center, -sds * axis, sds)


def tails_along(
    probe: LogDensityProbe,
    rays: Sequence[Ray],
    std: Float[np.ndarray, " dim"],
    *,
    slope: float,
    settings: Propriety = DEFAULT,
) -> list[tuple[Ray, Tail]]:
    """Tails that fall like t^slope or more slowly, with their rays; `std` are q's sds.

    Three values of the log density for each ray and one at each center, some sixty more where these
    leave a doubt, and again as many on a parallel ray where something is found.
    """
    if not rays:
        return []
    first = _profiles(probe, rays, np.asarray(settings.first_look(probe.dtype)), settings)
    doubtful = [
        ray for ray, profile in zip(rays, first, strict=True) if suspicious(profile, slope, settings)
    ]
    if not doubtful:
        return []
    second = _profiles(probe, doubtful, settings.second_look(probe.dtype), settings)
    found = _found(probe, doubtful, second, slope, settings)
    if not found:
        return []
    profiles = {id(ray): profile for ray, profile in zip(doubtful, second, strict=True)}
    parallel = [_aside(probe, ray, profiles[id(ray)], std, settings) for ray, _ in found]
    again = _profiles(probe, parallel, settings.second_look(probe.dtype), settings)
    sure = {id(ray) for ray, _ in _found(probe, parallel, again, slope, settings)}
    return [pair for pair, ray in zip(found, parallel, strict=True) if id(ray) in sure]


def _found(
    probe: LogDensityProbe,
    rays: Sequence[Ray],
    profiles: Sequence[Profile],
    slope: float,
    settings: Propriety,
) -> list[tuple[Ray, Tail]]:
    """Rays with a tail of this slope or a slower one; the model's map is asked only where it matters."""
    found = []
    for ray, profile in zip(rays, profiles, strict=True):
        if tail_of(profile, settings, walls_are_arithmetic=True) is None:
            continue
        if probe.has_scale:
            profile = profile._replace(resolved=probe.resolved(ray.at(profile.distances)))
        tail = tail_of(profile, settings)
        if tail is not None and tail.slope > slope:
            found.append((ray, tail))
    return found


def _aside(
    probe: LogDensityProbe,
    ray: Ray,
    profile: Profile,
    std: Float[np.ndarray, " dim"],
    settings: Propriety,
) -> Ray:
    """A parallel ray whose center is not much lower. Any will do, so it is always the same.

    Where coordinates are correlated, a step by their sds leaves the posterior; a shorter one is taken.
    """
    noise = np.random.default_rng(1).standard_normal(std.size)
    shorter = settings.aside * 10.0 ** -np.arange(settings.shorter + 1)

    def points(piece: slice) -> Float[np.ndarray, "points dim"]:
        return ray.center + shorter[piece, None] * std * noise

    found = in_pieces(probe.values, points, shorter.size, std.size, settings)
    fine = np.flatnonzero(found >= profile.here - settings.lower)
    share = shorter[fine[0]] if fine.size else 0.0
    return ray._replace(center=ray.center + share * std * noise)


def slow_tails(
    probe: LogDensityProbe,
    center: Float[np.ndarray, " dim"],
    std: Float[np.ndarray, " dim"],
    axes: Float[np.ndarray, "axes dim"],
    settings: Propriety = DEFAULT,
) -> list[tuple[Ray, Tail]]:
    """Along these axes, tails that fall too slowly for a variance, the slowest first."""
    rays = [ray for axis in axes for ray in both_sides(center, axis, probe.dtype, settings)]
    found = tails_along(probe, rays, std, slope=settings.no_variance_slope, settings=settings)
    return sorted(found, key=lambda pair: -pair[1].slope)


def _profiles(
    probe: LogDensityProbe,
    rays: Sequence[Ray],
    distances: Float[np.ndarray, " points"],
    settings: Propriety,
) -> list[Profile]:
    """Values along all rays; of centers that several rays share, one value."""
    centers = {id(ray.center): ray.center for ray in rays}
    places = [(center, 0 * center, 0.0) for center in centers.values()]
    places += [(ray.center, ray.step, t) for ray in rays for t in distances]

    def points(piece: slice) -> Float[np.ndarray, "points dim"]:
        return np.stack([center + t * step for center, step, t in places[piece]])

    values = in_pieces(probe.values, points, len(places), rays[0].center.size, settings)
    here = dict(zip(centers, values[: len(centers)].tolist(), strict=True))
    along = values[len(centers) :].reshape(len(rays), len(distances))
    finite = along[np.isfinite(along)]
    highest = float(np.max(finite)) if finite.size else -math.inf
    return [
        Profile(
            distances,
            row,
            here[id(ray.center)] if math.isfinite(here[id(ray.center)]) else highest,
            ray.sds,
            float(np.max(np.abs(ray.step))),
            probe.digits,
        )
        for ray, row in zip(rays, along, strict=True)
    ]


def in_pieces(
    values: Values,
    points: Callable[[slice], Float[np.ndarray, "points dim"]],
    count: int,
    dim: int,
    settings: Propriety = DEFAULT,
) -> Float[np.ndarray, " count"]:
    """The log density at `count` points; `points` makes a slice of them, for not too many at once."""
    at_once = max(1, settings.most_numbers // dim)
    with np.errstate(all="ignore"):
        parts = [
            np.asarray(values(points(slice(first, first + at_once))), float)
            for first in range(0, count, at_once)
        ]
    return np.concatenate(parts)
