"""What counts as right, as wrong, and as not found out yet, beyond noise."""

import math

import numpy as np
from jaxtyping import Bool

from .comparison import Comparison

# What a right fit may be off by: means in posterior sds, log of q's sd over the posterior's.
MEAN, NARROW, WIDE = 0.25, -math.log(1.3), math.log(1.3)
# Estimates are called off a little before, if noise alone would make them so in less than one of a
# thousand coordinates.
CAUTION, SIGNIFICANT = 0.88, 3.3
SHARP_MEAN, SHARP_SCALE = 0.1, 0.12
# Errors that must fit between an estimate and its limit for it to count as right, and for chains not to
# go on. Sds are estimated too low where a tail has not been visited yet, and so are their errors.
MARGIN, CLEAR_MARGIN = 1.0, 2.0


def combine(moved: Comparison, weighted: Comparison) -> Comparison:
    """What chains say where they say it sharply; elsewhere the sharper of the two.

    Chains come first because weights of a q that is too narrow underestimate scales, and their own
    error, without a sign of it in k-hat.
    """
    return moved.sharper(weighted, mean=SHARP_MEAN, scale=SHARP_SCALE)


def off(found: Comparison) -> tuple[Bool[np.ndarray, " dim"], Bool[np.ndarray, " dim"]]:
    """Which means, and which scales, are off beyond tolerance and noise."""
    mean, scale = _beyond(found, CAUTION)
    return (
        mean & (np.abs(found.shift) > SIGNIFICANT * found.shift_error),
        scale & (np.abs(found.log_ratio) > SIGNIFICANT * found.log_ratio_error),
    )


def unsure(found: Comparison) -> tuple[Bool[np.ndarray, " dim"], Bool[np.ndarray, " dim"]]:
    """Which means, and which scales, the estimates leave open."""
    (mean, scale), wrong = _beyond(found, CAUTION), off(found)
    near_mean, near_scale = _beyond(_towards(found, MARGIN), 1.0)
    mean = mean | near_mean | (found.shift_error > SHARP_MEAN)
    scale = scale | near_scale | (found.log_ratio_error > SHARP_SCALE)
    return mean & ~wrong[0], scale & ~wrong[1]


def plain(found: Comparison) -> bool:
    """Whether more chains would not change the answer: all is within tolerance, or something far off."""
    mean, scale = _beyond(_towards(found, -SIGNIFICANT), 1.0)
    far_mean, far_scale = off(found)
    if np.any(mean & far_mean) or np.any(scale & far_scale):
        return True
    close = _beyond(_towards(found, CLEAR_MARGIN), CAUTION)
    return not any(map(np.any, (*close, *unsure(found))))


def _towards(found: Comparison, errors: float) -> Comparison:
    """Estimates moved away from zero by so many errors, or towards it."""
    with np.errstate(invalid="ignore"):
        return found._replace(
            shift=found.shift + np.sign(found.shift) * errors * found.shift_error,
            log_ratio=found.log_ratio + np.sign(found.log_ratio) * errors * found.log_ratio_error,
        )


def _beyond(found: Comparison, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Which estimates exceed this share of the tolerance."""
    scale = (found.log_ratio < share * NARROW) | (found.log_ratio > share * WIDE)
    return np.abs(found.shift) > share * MEAN, scale
