"""Points towards which a log density rises without end, so that a scale of q shrinks for ever."""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ...status import Status
from ...targets.coordinates import coordinate_name
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
    ten times finer each time. Around the point that is found, the log density of a spike falls by
    s log(10) each time the distance grows by ten: over several decades, s >= 1 means infinite mass, less
    is a peak with a finite integral. A smooth density is flat there, or falls faster and faster.
    """
    center = np.where(np.isfinite(mean), mean, 0.0)
    scales = np.where(np.isfinite(std) & (std > 0), std, 1.0)
    own = range(probe.own(mean.size))
    narrow = [i for i in coordinates if i in own and scales[i] < settings.wider * start_std[i]]
    if not narrow:
        return None
    places, widths = _highest(probe, center, scales, narrow, settings)
    decades = settings.spike_finer ** np.arange(1.0, settings.spike_decades + 2)
    around = widths[:, None] * np.concatenate([decades, -decades])
    found = _shifted(probe, center, narrow, places[:, None] + around, settings)
    heights = np.maximum(*np.split(found, 2, axis=1))
    least = settings.spike_power * math.log(settings.spike_finer)
    for index, row, width in zip(narrow, heights, widths, strict=True):
        falls = -np.diff(row)
        even = np.min(falls) > least and np.max(falls) < settings.spike_even * np.min(falls)
        # A search that ended early has told nothing of the decades in between.
        if even and width * decades[-1] <= scales[index] * (1 + 1e-9):
            return Finding(
                Status.COLLAPSED,
                f"the log density has a spike along {coordinate_name(probe.target, index)} near "
                f"{center[index]:.6g}, towards which q's scale shrinks without end (now "
                f"{scales[index]:.1e}); bound that coordinate away from it with a prior or another "
                "parametrisation",
            )
    return None


def _highest(
    probe: LogDensityProbe,
    center: Float[np.ndarray, " dim"],
    scales: Float[np.ndarray, " dim"],
    coordinates: Sequence[int],
    settings: Propriety,
) -> tuple[Float[np.ndarray, " coordinates"], Float[np.ndarray, " coordinates"]]:
    """Where each coordinate's log density is highest near the center, and how finely that is known."""
    grid = np.linspace(-settings.spike_reach, settings.spike_reach, settings.spike_points)
    places, widths = np.zeros(len(coordinates)), scales[list(coordinates)]
    known, highest = widths.copy(), []
    for _ in range(settings.spike_rounds):
        # Where neighbours on the grid are the same number, nothing finer can be told.
        resolved = widths >= 4 * probe.digits * np.abs(center[list(coordinates)] + places)
        if not resolved.any():
            break
        found = _shifted(probe, center, coordinates, places[:, None] + widths[:, None] * grid, settings)
        best = np.argmax(found, axis=1)
        places = places + np.where(resolved, widths * grid[best], 0.0)
        known = np.where(resolved, widths, known)
        highest.append(np.max(found, axis=1))
        widths = widths / settings.spike_finer
        # A smooth density has soon nothing left to gain. Nor has a point that is exactly on a spike.
        if len(highest) > settings.spike_decades + 1:
            gained = highest[-1] - highest[-2 - settings.spike_decades]
            if not np.any(gained > settings.spike_flat):
                break
    return places, known


def _shifted(
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
