"""Points towards which a log density rises without end, so that a scale of q shrinks for ever."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ..status import Status
from ..targets.coordinates import coordinate_name
from .finding import Finding
from .probe import LogDensityProbe
from .rays import in_pieces
from .settings import DEFAULT, Propriety


def spike(
    probe: LogDensityProbe,
    mean: Float[np.ndarray, " dim"],
    std: Float[np.ndarray, " dim"],
    coordinates: Sequence[int],
    *,
    start_std: Float[np.ndarray, " dim"],
    settings: Propriety = DEFAULT,
) -> Finding | None:
    """Whether the density rises like |z|^-s, s >= 1, towards some point near q's mean.

    Each coordinate that has not become much wider is searched on a grid around its highest point so far,
    ten times finer each time. A smooth density has soon nothing left to gain, and a peak whose integral
    is finite gains less than s = 1.
    """
    center = np.where(np.isfinite(mean), mean, 0.0)
    scales = np.where(np.isfinite(std) & (std > 0), std, 1.0)
    own = range(probe.own(mean.size))
    narrow = [i for i in coordinates if i in own and scales[i] < settings.wider * start_std[i]]
    if not narrow:
        return None
    grid = np.linspace(-settings.spike_reach, settings.spike_reach, settings.spike_points)
    places, widths = np.zeros(len(narrow)), scales[narrow]
    highest: list[list[float]] = [[] for _ in narrow]
    window = settings.spike_window

    def gains(heights: list[float], least: float) -> bool:
        return len(heights) > window and heights[-1] - heights[-1 - window] > least

    for _ in range(settings.spike_rounds):
        # Where neighbours on the grid are the same number, nothing finer can be told.
        middle = np.abs(center[narrow] + places)
        resolved = widths >= 4 * probe.digits * middle
        if not resolved.any():
            break
        found = _around(probe, center, narrow, places[:, None] + widths[:, None] * grid, settings)
        best = np.argmax(found, axis=1)
        for number, at in zip(np.flatnonzero(resolved), best[resolved], strict=True):
            # At the edge of the grid the density only slopes.
            inside = 0 < at < grid.size - 1
            highest[number].append(float(found[number, at]) if inside else math.nan)
            places[number] += widths[number] * grid[at]
        widths = widths / settings.spike_finer
        # A point that happens to be very close to the spike is not bettered for some rounds.
        if all(len(h) > window and not gains(h, settings.spike_flat) for h in highest):
            return None
    least = settings.spike_slope * window * math.log(settings.spike_finer)
    for index, heights in zip(narrow, highest, strict=True):
        if gains(heights, least):
            return Finding(
                Status.COLLAPSED,
                f"the log density has a spike along {coordinate_name(probe.target, index)} near "
                f"{center[index]:.6g}, towards which q's scale shrinks without end (now "
                f"{scales[index]:.1e}); bound that coordinate away from it with a prior or another "
                "parametrisation",
            )
    return None


def _around(
    probe: LogDensityProbe,
    center: Float[np.ndarray, " dim"],
    coordinates: Sequence[int],
    shifts: Float[np.ndarray, "coordinates points"],
    settings: Propriety,
) -> Float[np.ndarray, "coordinates points"]:
    """The log density at `center` shifted along one coordinate each.

    What is not finite counts as zero density: an infinite value is the end of a rise, if it is one.
    """
    moved = np.repeat(coordinates, shifts.shape[1])

    def points(piece: slice) -> Float[np.ndarray, "points dim"]:
        some = moved[piece]
        z = np.repeat(center[None, :], some.size, axis=0)
        z[np.arange(some.size), some] += shifts.ravel()[piece]
        return z

    found = in_pieces(probe.values, points, shifts.size, center.size, settings)
    return np.where(np.isfinite(found), found, -math.inf).reshape(shifts.shape)
