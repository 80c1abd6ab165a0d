"""Directions between the coordinates along which a log density never ends.

Data that tell a sum leave the difference open: two equal predictors, or an intercept beside one for each
group. No coordinate is improper by itself, and who looks along coordinates sees nothing. But at no point
has the gradient any part in such a direction, so a few gradients give it away.
"""

import math

import numpy as np
from jaxtyping import Float

from .status import Status
from .targets import Target
from .targets.coordinates import coordinate_name
from .trouble import Density, Trouble, slope_is_endless

# Coordinates up to which one gradient for each, and a few more, are taken.
MOST_DIM, MORE = 128, 4
# The flattest directions that are looked along.
FLATTEST = 2
# How far out, by the bytes of a number: in single precision, what is near is lost beside 1e8.
FAR = {8: (1e6, 1e8), 4: (1e4, 1e6)}
# Directions with simple ratios are known to as many digits, whatever the gradients are rounded to.
DIGITS = 3
# Nats by which the density may differ far out, which is more than rounding there makes, and nats of
# rounding beside which nothing is told.
SLACK, ROUNDING = 20.0, 0.1
SHOWN, TAKES_PART = 3, 0.3


def ridge(
    target: Target,
    density: Density,
    mean: Float[np.ndarray, " dim"],
    std: Float[np.ndarray, " dim"],
    number_bytes: int,
) -> Trouble | None:
    """Whether the log density does not fall off in some direction between the coordinates."""
    dim, own = mean.size, mean.size - target.hyperparameter_count
    if not 1 < own <= MOST_DIM or not (np.all(np.isfinite(mean)) and np.all(std[:own] > 0)):
        return None
    with np.errstate(all="ignore"):
        here, slopes = density(mean + std * _around(own + MORE, dim))
    slopes = slopes[np.isfinite(here) & np.all(np.isfinite(slopes), axis=1), :own]
    if len(slopes) < own:
        return None
    sides = _flattest(slopes, std[:own])
    sides = np.concatenate([sides, -sides])
    z = np.concatenate([_along(mean, side, FAR[number_bytes]) for side in sides])
    with np.errstate(all="ignore"):
        found = density(z)[0].reshape(len(sides), 3)
    for side, values in zip(sides, found, strict=True):
        here, near, far = values.tolist()
        if _flat(here, near, far, number_bytes):
            return _said(target, side / np.max(np.abs(side)), far)
    return None


def _along(
    mean: Float[np.ndarray, " dim"], side: Float[np.ndarray, " own"], far: tuple[float, float]
) -> Float[np.ndarray, "3 dim"]:
    """A center, and two points far out from it.

    A fit may have run out along the ridge already, where digits end: the center is nearer by.
    """
    z = np.repeat(mean[None], 3, axis=0)
    own = z[:, : side.size]
    own -= side * (side @ own[0]) / (side @ side)
    # Far out means far from zero as well.
    span = max(1.0, float(np.max(np.abs(own[0]), initial=1.0) / np.max(np.abs(side))))
    own[1:] += span * np.asarray(far)[:, None] * side
    return z


def _flat(here: float, near: float, far: float, number_bytes: int) -> bool:
    """Whether the log density is the same at the center and far out, as far as digits tell."""
    if not all(map(math.isfinite, (here, near, far))):
        return False
    digits = np.finfo(np.float32 if number_bytes == 4 else np.float64).eps
    if max(abs(here), abs(near)) * digits > ROUNDING or abs(here - near) > SLACK:
        return False
    first, last = FAR[number_bytes]
    return all(slope_is_endless(a, b, last / first) for a, b in ((near, far), (far, near)))


def _around(points: int, dim: int) -> Float[np.ndarray, "points dim"]:
    """Any points will do, so they are always the same."""
    return np.random.default_rng(0).standard_normal((points, dim))


def _flattest(
    slopes: Float[np.ndarray, "points dim"], std: Float[np.ndarray, " dim"]
) -> Float[np.ndarray, "directions dim"]:
    """The directions that gradients have least part in, and the same with simple ratios."""
    found = np.linalg.svd(slopes * std)[2][-FLATTEST:] * std
    ratios = found / np.max(np.abs(found), axis=1, keepdims=True)
    return np.concatenate([found, np.round(ratios, DIGITS)])


def _said(target: Target, direction: Float[np.ndarray, " dim"], value: float) -> Trouble:
    parts = [int(i) for i in np.argsort(-np.abs(direction)) if abs(direction[i]) > TAKES_PART]
    names = " and ".join(coordinate_name(target, i) for i in parts[:SHOWN])
    more = "" if len(parts) <= SHOWN else f" and {len(parts) - SHOWN} more"
    ratios = " : ".join(f"{direction[i]:+.3g}" for i in parts[:SHOWN])
    return Trouble(
        Status.UNBOUNDED,
        f"the log density does not fall off between {names}{more}: however far they are moved together, "
        f"in the ratio {ratios}, it is {value:.4g}, so the posterior is improper; give them a proper "
        "prior, or take one of them out of the model",
    )
