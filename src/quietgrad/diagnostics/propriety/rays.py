"""Rays from q's center to far away, and how a log density falls off along one: the rule.

Impropriety is about mass. Beyond some distance, a density p(t) ~ t^s has infinite mass if s > -1,
whatever its height. But numbers end, and three things look like such a tail that are none:

- *Depth.* A flat stretch D nats below the mode holds as much mass as the mode only if it is exp(D) times
  as wide. With D > log(t) + 20 it would have to reach 5e8 times as far as the distance t that was looked
  at, and a density that has fallen to almost zero is often flat only because numbers end.
- *Clipping.* A transform that is cut off where exp underflows gives a density that falls to that point
  as fast as before, and is constant from there on. A density that has a limit approaches it: its fall
  fades before it becomes constant. So a fall that stops at once, as far out or as deep as numbers end,
  is a cut-off, and only what comes before it counts. Where the model's own map tells that its variables
  do not change any more, nothing beyond counts either.
- *Overflow.* NaN and infinity are no mass, unless the density was seen to rise towards them at least
  linearly. Minus infinity is a density of zero, unless the model's map ends at the same place.
- *Rounding.* Far out a model may subtract large numbers, such as log Gamma at e^70, and what is left is
  as large as they are wrong, and rises as they do. Where the log density changes from one number to the
  next by as much as it has risen, it says nothing.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .probe import LogDensityProbe, Values
from .settings import DEFAULT, Propriety

# Parts of a direction that are named: those of at least this share of the largest, and how many.
TAKES_PART, SHOWN = 0.3, 3


class Tail(NamedTuple):
    """The density falls like t^slope, with `value` at `distance`; it has infinite mass if `improper`.

    `certain` says that it is flat, rises, or falls so slowly that more steps of a fit cannot change it.
    """

    slope: float
    value: float
    distance: float
    improper: bool
    certain: bool


class Profile(NamedTuple):
    """Values of a log density at distances along a ray, in spans, and `here` at its center.

    `sds` and `length` are a span in sds of q and in the largest of the coordinates. `digits` is the
    rounding error of a number, and `resolved` says where the model's variables still change, if known.
    """

    distances: Float[np.ndarray, " points"]
    values: Float[np.ndarray, " points"]
    here: float
    sds: float
    length: float
    digits: float
    resolved: Bool[np.ndarray, " points"] | None = None

    def rounding(self, settings: Propriety) -> float:
        """Nats of rounding in the values that matter."""
        return settings.ulps * self.digits * max(abs(self.here), 1.0)

    def shallow(self, place: int, slope: float, settings: Propriety) -> bool:
        """Whether a tail of this slope could lie as deep as the value at this place."""
        depth = self.here - self.values[place]
        return bool(depth <= settings.deepest(self.distances[place] * self.sds, slope))


def suspicious(profile: Profile, slope: float, settings: Propriety = DEFAULT) -> bool:
    """Whether a tail of `slope` or slower is possible, from a few distances: worth a second look."""
    values = profile.values
    if values[-1] == math.inf:
        return True
    finite = np.flatnonzero(np.isfinite(values))
    return finite.size == 0 or profile.shallow(int(finite[-1]), slope, settings)


def tail_of(
    profile: Profile, settings: Propriety = DEFAULT, *, walls_are_arithmetic: bool = False
) -> Tail | None:
    """The tail if it falls too slowly for a variance, or None.

    `walls_are_arithmetic` counts the flat stretch before a density of zero as well: what might be found
    if the model's map, which is not known yet, ends there.
    """
    values, count = profile.values, _finite(profile)
    if count < settings.flat_points:
        return None
    ends = _end(profile, count, walls_are_arithmetic=walls_are_arithmetic)
    onset = _onset(profile, count, settings)
    blurred = profile.rounding(settings) > settings.most_rounding
    if count - onset >= settings.flat_points and not blurred:
        if ends == "open" and _cut_off(profile, onset, settings):
            count, ends = onset, "arithmetic"
        elif ends == "wall" or not profile.shallow(count - 1, settings.improper_slope, settings):
            return None
        else:
            return _tail(profile, count - 1, 0.0, settings)
    if ends == "open":
        return None if blurred else _sloping(profile, settings)
    grows = _grows(profile, count, settings)
    overflows = ends == "arithmetic" or values[count - 1] > math.sqrt(_largest(profile.digits))
    return _tail(profile, count - 1, math.inf, settings) if grows and overflows else None


def _tail(profile: Profile, place: int, slope: float, settings: Propriety) -> Tail:
    return Tail(
        slope,
        float(profile.values[place]),
        float(profile.distances[place]),
        improper=slope > settings.improper_slope,
        certain=slope > settings.certain_slope,
    )


def _finite(profile: Profile) -> int:
    """How many distances, from the first on, have a finite value before the model's map ends."""
    good = np.isfinite(profile.values)
    if profile.resolved is not None:
        good &= profile.resolved
    return int(np.argmin(good)) if not good.all() else good.size


def _end(profile: Profile, count: int, *, walls_are_arithmetic: bool) -> str:
    """What ends the finite values: nothing ("open"), a density of zero ("wall"), or "arithmetic"."""
    if count == profile.values.size:
        return "open"
    saturated = profile.resolved is not None and not profile.resolved[count]
    if saturated or walls_are_arithmetic or profile.values[count] == math.inf:
        return "arithmetic"
    return "wall"


def _onset(profile: Profile, count: int, settings: Propriety) -> int:
    """From which distance on the values are constant to rounding."""
    values = profile.values[:count]
    same = np.abs(values - values[-1]) <= profile.rounding(settings)
    return int(count - np.argmin(same[::-1])) if not same.all() else 0


def _cut_off(profile: Profile, onset: int, settings: Propriety) -> bool:
    """Whether the values fall to the onset of a flat stretch as fast as before, where numbers end."""
    if onset < 3:
        return False
    before, last = -np.diff(profile.values[onset - 3 : onset])
    if not (last > profile.rounding(settings) and last >= settings.kink * before):
        return False
    depth = profile.here - profile.values[onset]
    numbers_end = -settings.cut_off * math.log(profile.digits)
    far = profile.distances[onset] * profile.length
    return bool(depth > settings.least_fall and max(far, depth) >= numbers_end)


def _grows(profile: Profile, count: int, settings: Propriety) -> bool:
    """Whether the last values rise at least linearly, to more than the center's."""
    if count < 7:
        return False
    rises = np.diff(profile.values[count - 7 : count : 3])
    least = -math.log(profile.digits)
    above = profile.values[count - 1] - profile.here > least
    return bool(above and rises[0] > 0 and rises[1] >= settings.growth * rises[0])


def _sloping(profile: Profile, settings: Propriety) -> Tail | None:
    """The slope over the farthest two decades, by least squares: waves average out."""
    far = profile.distances >= profile.distances[-1] / 100 * (1 - 1e-9)
    x, y = np.log(profile.distances[far]), profile.values[far]
    x = x - np.mean(x)
    slope = float(x @ y / (x @ x))
    last = profile.values.size - 1
    if not slope > settings.no_variance_slope:
        return None
    depth = max(settings.no_variance_slope, min(slope, settings.improper_slope))
    return _tail(profile, last, slope, settings) if profile.shallow(last, depth, settings) else None


def _largest(digits: float) -> float:
    return float(np.finfo(np.float32 if digits > 1e-10 else np.float64).max)


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
        if tail is not None and tail.slope == math.inf:
            smooth = _smooth(probe, ray, profile, settings)
            known = smooth if profile.resolved is None else profile.resolved & smooth
            tail = tail_of(profile._replace(resolved=known), settings)
        if tail is not None and tail.slope > slope:
            found.append((ray, tail))
    return found


def _smooth(
    probe: LogDensityProbe, ray: Ray, profile: Profile, settings: Propriety
) -> Bool[np.ndarray, " points"]:
    """At which distances the log density is smooth from number to number, by its second difference.

    Where it is not finite it ends for another reason.
    """
    z = ray.at(profile.distances)
    signs = np.random.default_rng(2).choice([-1.0, 1.0], z.shape)
    h = settings.numbers_apart * probe.digits * np.abs(z) * signs
    places = np.concatenate([z + h, z, z - h])
    found = in_pieces(probe.values, lambda piece: places[piece], len(places), z.shape[1], settings)
    with np.errstate(all="ignore"):
        above, value, below = found.reshape(3, -1)
        noise = np.abs(above - 2 * value + below) / 2
        return ~(noise > settings.blurred * np.abs(value - profile.here))


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
