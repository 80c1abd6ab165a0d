"""What is wrong with a target, as a status and a sentence, and where to look for it first.

Infinite mass can lie along a coordinate, or between some. With two equal predictors, or an intercept
beside one for each group, the data determine a sum and leave a difference open. No coordinate is
improper by itself. But at no point has the gradient any part in such a direction, so a few gradients
reveal it. A likelihood with a separating plane has no such direction; there, q itself moves along one
that does not end. A spike is a point towards which the density rises without end, so that a scale of q
shrinks for ever.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...status import Status
from ...targets import Target
from ...targets.target import coordinate_name
from .probe import LogDensityProbe
from .rays import SHOWN, Ray, Tail, both_sides, in_pieces, tails_along
from .settings import DEFAULT, Propriety

# For a fit that could not go on because of them.
WALL = (
    "steps ran into points next to the answer where the log density is NaN or infinite, so the answer "
    "is not the best one; if the density is zero in part of the space, map that part away (log, logit)"
)


class Finding(NamedTuple):
    """A reason why a fit cannot succeed, and a sentence that says what to do.

    `certain` says that going on would not change it, so that a fit may end on the way.
    """

    status: Status
    hint: str
    certain: bool = True

    @property
    def ending(self) -> tuple[Status, str]:
        """As an ending of a fit."""
        return self.status, self.hint


def displaced(
    mean: Float[np.ndarray, " dim"],
    std: Float[np.ndarray, " dim"],
    start_mean: Float[np.ndarray, " dim"],
    start_std: Float[np.ndarray, " dim"],
    factor: float,
    settings: Propriety = DEFAULT,
) -> list[int]:
    """Coordinates that have moved, grown or shrunk by more than `factor`, the furthest first."""
    moved = displacement(mean, std, start_mean, start_std)
    return [i for i in furthest(moved, settings) if not moved[i] <= math.log(factor)]


def furthest(moved: Float[np.ndarray, " dim"], settings: Propriety = DEFAULT) -> list[int]:
    """The coordinates that have moved most, first the furthest; fewer where each costs much."""
    dim = moved.size
    count = max(1, min(settings.most_coordinates, dim, settings.most_numbers // dim))
    some = np.argpartition(-moved, count - 1)[:count]
    return [int(i) for i in some[np.argsort(-moved[some], kind="stable")]]


def displacement(
    mean: Float[np.ndarray, " dim"],
    std: Float[np.ndarray, " dim"],
    start_mean: Float[np.ndarray, " dim"],
    start_std: Float[np.ndarray, " dim"],
) -> Float[np.ndarray, " dim"]:
    """The log of the factor by which location or scale have changed; infinite if not finite.

    Coordinates that never had any scale are hyperparameters, which may go where they like.
    """
    with np.errstate(all="ignore"):
        wide = np.maximum(start_std, 1.0)
        location = np.log1p(np.abs(mean - start_mean) / (wide + np.abs(start_mean)))
        scale = np.abs(np.log(std / np.maximum(start_std, 1e-300)))
    moved = np.maximum(location, scale)
    moved = np.where(np.isfinite(moved), moved, np.inf)
    return np.where((std == 0) & (start_std == 0), -np.inf, moved)


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
        f"{place:.0e} it is {tail.value + 0.0:.4g}, so the posterior is improper; give that coordinate "
        "a proper prior, or take it out of the model",
        tail.certain,
    )


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
        f"in the ratio {ratios}, it is {tail.value + 0.0:.4g}, so the posterior is improper; give them "
        "a proper prior, or take one of them out of the model",
        tail.certain,
    )


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


def unbounded_hyperparameter(
    probe: LogDensityProbe,
    points: Float[np.ndarray, "points dim"],
    least: float,
    settings: Propriety = DEFAULT,
) -> Finding | None:
    """Whether far along a hyperparameter the log density is `least` nats higher than at the answer.

    It is the mean over q's draws. A hyperparameter that has a best value is worse far from it on both
    sides. An infinite value is overflow, which says nothing.
    """
    dim = points.shape[1]
    for index in range(probe.own(dim), dim)[: settings.most_coordinates]:
        here = points[0, index]
        span = settings.farthest(probe.dtype) * max(1.0, abs(here))
        moved = np.repeat(points[None], 3, axis=0)
        moved[1:, :, index] += np.array([[span], [-span]])
        moved = moved.reshape(-1, dim)
        found = in_pieces(probe.values, lambda piece, z=moved: z[piece], len(moved), dim, settings)
        with np.errstate(all="ignore"):
            found = found.reshape(3, -1).mean(axis=1)
        for shift, value in zip((span, -span), found[1:], strict=True):
            if np.isfinite(value) and value >= found[0] + least:
                return Finding(
                    Status.UNBOUNDED,
                    f"{coordinate_name(probe.target, index)} is a hyperparameter without a best value: "
                    f"the log density is {found[0]:.4g} at {here:.4g}, {value:.4g} at "
                    f"{here + shift:.0e}; more steps do not help: bound it by another parametrisation, "
                    "or add the log of a prior for it to log_prior",
                )
    return None


def nowhere_finite(target: Target, points: Float[np.ndarray, "points dim"]) -> Finding:
    """Say which part of the target is not finite at these points."""
    point, count = jnp.asarray(points[0]), len(points)
    where = "the log density"
    prior = float(target.log_prior(target.point(point)))
    if not math.isfinite(prior):
        part = "log density" if target.log_likelihood is None else "log prior"
        where = f"the {part} is {prior:g}"
    elif target.log_likelihood is not None:
        rows = np.flatnonzero(~np.isfinite(np.asarray(target.log_likelihoods(point))))
        if rows.size:
            more = "" if rows.size <= SHOWN else f" and {rows.size - SHOWN:,} more"
            shown = ", ".join(map(str, rows[:SHOWN]))
            where = f"the log likelihood of row{'s' if rows.size > 1 else ''} {shown}{more}"
            where += " is not finite"
    if where == "the log density":
        where = "the log density or its gradient is not finite"
    return Finding(
        Status.NON_FINITE,
        f"{where} at any of {count:,} points tried around the start; evaluate target.log_density at a "
        "point of your choice and look for log of a negative number, division by zero or overflow, or "
        "hand in a family that starts where the density is finite",
    )


def partly_finite(share: float) -> Finding:
    """The answer puts draws where the density is zero or not a number."""
    return Finding(
        Status.NON_FINITE,
        f"the log density is NaN or infinite at {share:.1%} of the draws of the best q found, so its "
        "ELBO is not finite; if the density is zero in part of the space, map that part away (log, "
        "logit), otherwise look for overflow far from the mode",
    )
