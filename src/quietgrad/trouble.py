"""What is wrong with a target when a fit fails: where it is not finite, and where it has no end.

A proper density must fall faster than 1/t along every line. Far out along a coordinate, log density
against log t with a slope above -1 means that it does not, and the posterior cannot be normalised.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from .status import Status
from .targets import Target
from .targets.coordinates import coordinate_name

# How far out, in spans of the fitted scale, the log density is looked at.
FAR = (1e1, 1e2, 1e4, 1e6, 1e8)
# Nats below q's mean, beside the log of the distance, at which a flat stretch still counts as mass: to
# make up for more, it would have to be wider than anything that a fit can see. Transforms that clip at
# the smallest float are flat beyond it, hundreds of nats down.
SLACK = 20.0
# Hyperparameters that are looked at.
LOOKED_AT = 8
# Numbers (points x coordinates) that are looked at in one piece.
NUMBERS = 2**22
# The search for a spike: points of a round in its widths, rounds, how many of them are looked at
# together, and the nats that these must gain. A density that grows like 1/|z|^2 gains 4.6 each time the
# distance shrinks by ten; a lucky point is ahead of its round, and those after it gain nothing.
GRID, ROUNDS, LUCKY, SPIKE = tuple(np.linspace(-3, 3, 13)), 12, 5, 4.0
# A scale that has grown by this factor since the start does not shrink towards a spike.
WIDER = 100.0
# So many rounds in which no coordinate gains this many nats end the search.
FLAT = 0.01
SHOWN = 3


Values = Callable[[Float[np.ndarray, "points dim"]], Float[np.ndarray, " points"]]
# The log density and its gradient.
Density = Callable[
    [Float[np.ndarray, "points dim"]],
    tuple[Float[np.ndarray, " points"], Float[np.ndarray, "points dim"]],
]


class Trouble(NamedTuple):
    """A reason why a fit cannot succeed, and a sentence that says what to do."""

    status: Status
    hint: str


def nowhere_finite(target: Target, points: Float[np.ndarray, "points dim"]) -> Trouble:
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
    return Trouble(
        Status.NON_FINITE,
        f"{where} at any of {count:,} points tried around the start; evaluate target.log_density at a "
        "point of your choice and look for log of a negative number, division by zero or overflow, or "
        "hand in a family that starts where the density is finite",
    )


def partly_finite(share: float) -> Trouble:
    """The answer puts draws where the density is zero or not a number."""
    return Trouble(
        Status.NON_FINITE,
        f"the log density is NaN or infinite at {share:.1%} of the draws of the best q found, so its "
        "ELBO is not finite; if the density is zero in part of the space, map that part away (log, "
        "logit), otherwise look for overflow far from the mode",
    )


def runaway(
    target: Target,
    values: Values,
    mean: Float[np.ndarray, " dim"],
    std: Float[np.ndarray, " dim"],
    coordinates: Sequence[int],
    *,
    start_std: Float[np.ndarray, " dim"],
) -> Trouble | None:
    """Whether the log density has no end along one of these coordinates, or a spike at q's mean.

    `values` evaluates the log density at many points. Hyperparameters are not asked: along them there is
    no density that would have to fall off. A spike is looked for where q has not become much wider.
    """
    coordinates = [i for i in coordinates if i < len(mean) - target.hyperparameter_count]
    if not coordinates:
        return None
    center = np.where(np.isfinite(mean), mean, 0.0)
    scales = np.where(np.isfinite(std) & (std > 0), std, 1.0)
    spans = np.maximum(np.maximum(scales, np.abs(center)), 1.0)
    shifts = [(i, sign * t * spans[i]) for i in coordinates for sign in (1, -1) for t in FAR]
    found = _shifted(values, center, [(0, 0.0), *shifts])
    here, found = float(found[0]), found[1:].reshape(len(coordinates), 2, len(FAR))
    for index, sides in zip(coordinates, found, strict=True):
        deepest = math.log(FAR[-1] * spans[index] / scales[index]) + SLACK
        for sign, side in zip((1, -1), sides, strict=True):
            if endless(side.tolist(), here, deepest):
                return Trouble(
                    Status.UNBOUNDED,
                    f"the log density does not fall off along {coordinate_name(target, index)}: at "
                    f"{center[index] + sign * FAR[-1] * spans[index]:.0e} it is {side[-1]:.4g}, so the "
                    "posterior is improper; give that coordinate a proper prior, or take it out of the "
                    "model",
                )
    narrow = [i for i in coordinates if scales[i] < WIDER * start_std[i]]
    return _spike(target, values, center, scales, narrow) if narrow else None


def unbounded_hyperparameter(
    target: Target, values: Values, points: Float[np.ndarray, "points dim"], least: float
) -> Trouble | None:
    """Whether far along a hyperparameter the log density is `least` nats higher than at the answer.

    It is the mean over q's draws. A hyperparameter that has a best value is worse far from it on both
    sides.
    """
    dim = points.shape[1]
    for index in range(dim - target.hyperparameter_count, dim)[:LOOKED_AT]:
        here = points[0, index]
        far = [sign * FAR[-1] * max(1.0, abs(here)) for sign in (1, -1)]
        moved = np.repeat(points[None], 3, axis=0)
        moved[1:, :, index] += np.asarray(far)[:, None]
        with np.errstate(all="ignore"):
            found = np.asarray(values(moved.reshape(-1, dim)), float).reshape(3, -1).mean(axis=1)
        for shift, value in zip(far, found[1:], strict=True):
            if value >= found[0] + least:
                return Trouble(
                    Status.UNBOUNDED,
                    f"{coordinate_name(target, index)} is a hyperparameter without a best value: the "
                    f"log density is {found[0]:.4g} at {here:.4g}, {value:.4g} at {here + shift:.0e}; "
                    "more steps do not help: bound it by another parametrisation, or add the log of "
                    "a prior for it to log_prior",
                )
    return None


def _spike(
    target: Target,
    values: Values,
    center: Float[np.ndarray, " dim"],
    scales: Float[np.ndarray, " dim"],
    coordinates: Sequence[int],
) -> Trouble | None:
    """Whether the log density rises without end towards some point near q's mean.

    Each coordinate is searched on a grid around its highest point so far, ten times finer each time. A
    smooth density has soon nothing left to gain.
    """
    places, widths = [0.0] * len(coordinates), [scales[i] for i in coordinates]
    highest = [[] for _ in coordinates]
    for _ in range(ROUNDS):
        shifts = [
            (i, place + width * g)
            for i, place, width in zip(coordinates, places, widths, strict=True)
            for g in GRID
        ]
        found = _shifted(values, center, shifts).reshape(len(coordinates), len(GRID))
        for number, row in enumerate(found):
            best = int(np.argmax(row))
            # At the edge of the grid the density only slopes.
            inside = 0 < best < len(GRID) - 1
            highest[number].append(row[best] if inside else math.nan)
            places[number] += widths[number] * GRID[best]
            widths[number] /= 10
        # A point that happens to be very close to the spike is not bettered for some rounds.
        if len(highest[0]) > LUCKY and all(not h[-1] - h[-1 - LUCKY] > FLAT for h in highest):
            return None
    for index, heights in zip(coordinates, highest, strict=True):
        if heights[-1] - heights[-1 - LUCKY] > SPIKE:
            return Trouble(
                Status.COLLAPSED,
                f"the log density has a spike along {coordinate_name(target, index)} near "
                f"{center[index]:.6g}, towards which q's scale shrinks without end (now "
                f"{scales[index]:.1e}); bound that coordinate away from it with a prior or another "
                "parametrisation",
            )
    return None


def _shifted(
    values: Values, center: Float[np.ndarray, " dim"], shifts: Sequence[tuple[int, float]]
) -> Float[np.ndarray, " points"]:
    """The log density at `center` shifted along one coordinate each; a NaN counts as zero density."""
    found, at_once = [], max(1, NUMBERS // center.size)
    for first in range(0, len(shifts), at_once):
        some = shifts[first : first + at_once]
        points = np.repeat(center[None, :], len(some), axis=0)
        for place, (index, shift) in enumerate(some):
            points[place, index] += shift
        with np.errstate(all="ignore"):
            found.append(np.asarray(values(points), float))
    found = np.concatenate(found)
    return np.where(np.isnan(found), -math.inf, found)


def endless(values: Sequence[float], here: float, deepest: float) -> bool:
    """Whether log densities at `FAR` steps fall more slowly than any proper density's.

    Not if they are more than `deepest` nats below the value `here`. An infinite one is overflow, unless
    the density rises towards it where it is still finite.
    """
    known = [value for value in values if math.isfinite(value)]
    if values[-1] == math.inf:
        return len(known) > 1 and known[-1] > max(known[-2], here)
    if not all(map(math.isfinite, values)) or here - values[-1] > deepest:
        return False
    return slope_is_endless(values[-2], values[-1], FAR[-1] / FAR[-2])


def slope_is_endless(near: float, far: float, ratio: float) -> bool:
    """Whether a log density falls more slowly than any proper one's between two distances."""
    return bool((far - near) / math.log(ratio) > -1)
