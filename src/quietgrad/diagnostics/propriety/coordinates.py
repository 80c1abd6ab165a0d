"""Coordinates along which a log density has infinite mass."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ...status import Status
from ...targets.coordinates import coordinate_name
from .finding import Finding
from .probe import LogDensityProbe
from .rays import Ray, both_sides, tails_along
from .settings import DEFAULT, Propriety
from .tail import Tail


def unbounded_coordinate(
    probe: LogDensityProbe,
    mean: Float[np.ndarray, " dim"],
    std: Float[np.ndarray, " dim"],
    coordinates: Sequence[int],
    settings: Propriety = DEFAULT,
) -> Finding | None:
    """Whether the log density does not fall off along one of these coordinates.

    Hyperparameters are left out: along them there is no density that would have to fall off.
    """
    center = np.where(np.isfinite(mean), mean, 0.0)
    scales = np.where(np.isfinite(std) & (std > 0), std, 1.0)
    axes = [scales[i] * np.eye(1, mean.size, i)[0] for i in coordinates if i < probe.own(mean.size)]
    rays = [ray for axis in axes for ray in both_sides(center, axis, probe.dtype, settings)]
    for ray, tail in tails_along(
        probe, rays, np.nan_to_num(std, posinf=0.0), slope=settings.improper_slope, settings=settings
    ):
        return along_coordinate(probe, ray, tail)
    return None


def along_coordinate(probe: LogDensityProbe, ray: Ray, tail: Tail) -> Finding:
    """A coordinate with infinite mass, in words."""
    index = ray.coordinates[0]
    place = ray.center[index] + tail.distance * ray.step[index]
    return Finding(
        Status.UNBOUNDED,
        f"the log density does not fall off along {coordinate_name(probe.target, index)}: at "
        f"{place:.0e} it is {tail.value:.4g}, so the posterior is improper; give that coordinate a "
        "proper prior, or take it out of the model",
        tail.certain,
    )
