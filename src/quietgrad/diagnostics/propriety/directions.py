"""Directions between the coordinates in which a log density has infinite mass.

With two equal predictors, or an intercept beside one for each group, the data determine a sum and leave
a difference open. No coordinate is improper by itself. But at no point has the gradient any part in such
a direction, so a few gradients give it away. A likelihood with a separating plane has no such direction;
there, q itself moves along one that does not end.
"""

import numpy as np
from jaxtyping import Float

from ...status import Status
from ...targets.coordinates import coordinate_name
from .coordinates import along_coordinate
from .finding import Finding
from .probe import LogDensityProbe
from .rays import SHOWN, Ray, both_sides, tails_along
from .settings import DEFAULT, Propriety
from .tail import Tail


def unbounded_direction(
    probe: LogDensityProbe,
    mean: Float[np.ndarray, " dim"],
    std: Float[np.ndarray, " dim"],
    travelled: Float[np.ndarray, " dim"] | None = None,
    settings: Propriety = DEFAULT,
) -> Finding | None:
    """Whether the log density does not fall off in some direction between the coordinates.

    `travelled` is the way of q's mean since its start, which is followed as well. One gradient for each
    coordinate and a few more.
    """
    dim, own = mean.size, probe.own(mean.size)
    if not 1 < own <= settings.most_dim or not (np.all(np.isfinite(mean)) and np.all(std[:own] > 0)):
        return None
    # Any points will do, so they are always the same.
    around = np.random.default_rng(0).standard_normal((own + settings.more_gradients, dim))
    with np.errstate(all="ignore"):
        here, gradients = probe.density(mean + std * around)
    gradients = gradients[np.isfinite(here) & np.all(np.isfinite(gradients), axis=1), :own]
    axes = flattest(gradients, std[:own], settings) if len(gradients) >= own else np.zeros((0, own))
    lines = [_aside(mean, axis) for axis in axes]
    if travelled is not None and np.all(np.isfinite(travelled)) and np.any(travelled[:own]):
        way = np.append(travelled[:own], np.zeros(dim - own))
        lines.append((mean, way))
    rays = [ray for line in lines for ray in both_sides(*line, probe.dtype, settings)]
    for ray, tail in tails_along(probe, rays, std, slope=settings.improper_slope, settings=settings):
        return _finding(probe, ray, tail)
    return None


def flattest(
    gradients: Float[np.ndarray, "points dim"],
    std: Float[np.ndarray, " dim"],
    settings: Propriety = DEFAULT,
) -> Float[np.ndarray, "directions dim"]:
    """The directions that at least `dim` gradients have least part in, and the same with simple ratios.

    Each is about one sd long, but for the shares that are rounded.
    """
    found = np.linalg.svd(gradients * std, full_matrices=False)[2][-settings.flattest :] * std
    longest = np.max(np.abs(found), axis=1, keepdims=True)
    return np.concatenate([found, longest * np.round(found / longest, settings.digits)])


def _aside(
    mean: Float[np.ndarray, " dim"], axis: Float[np.ndarray, " own"]
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
    """A center without the part of the mean along the axis, and the axis in all coordinates.

    A fit may have run out along it already, where digits end.
    """
    center, whole = mean.copy(), np.append(axis, np.zeros(mean.size - axis.size))
    return center - whole * (whole @ center) / (whole @ whole), whole


def _finding(probe: LogDensityProbe, ray: Ray, tail: Tail) -> Finding:
    parts, direction = ray.coordinates, ray.step / np.max(np.abs(ray.step))
    if len(parts) == 1:
        return along_coordinate(probe, ray, tail)
    names = " and ".join(coordinate_name(probe.target, i) for i in parts[:SHOWN])
    more = "" if len(parts) <= SHOWN else f" and {len(parts) - SHOWN} more"
    ratios = " : ".join(f"{direction[i]:+.3g}" for i in parts[:SHOWN])
    return Finding(
        Status.UNBOUNDED,
        f"the log density does not fall off between {names}{more}: however far they are moved together, "
        f"in the ratio {ratios}, it is {tail.value:.4g}, so the posterior is improper; give them a "
        "proper prior, or take one of them out of the model",
        tail.certain,
    )
