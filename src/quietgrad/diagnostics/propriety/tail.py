"""How a log density falls off along one ray, from its values at growing distances.

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
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from .settings import DEFAULT, Propriety


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
