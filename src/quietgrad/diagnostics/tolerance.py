"""What counts as right, as wrong, and as not found out yet, beyond noise."""

import functools
from statistics import NormalDist

import numpy as np
from jaxtyping import Bool

from .comparison import Comparison
from .settings import DEFAULT, Diagnostics


def combine(moved: Comparison, weighted: Comparison, settings: Diagnostics = DEFAULT) -> Comparison:
    """What chains say where they say it sharply; elsewhere the sharper of the two.

    Chains come first because weights of a q that is too narrow underestimate scales, and their own
    error, without a sign of it in k-hat.
    """
    return moved.sharper(weighted, mean=settings.sharp_mean, scale=settings.sharp_scale)


def off(
    found: Comparison, settings: Diagnostics = DEFAULT
) -> tuple[Bool[np.ndarray, " dim"], Bool[np.ndarray, " dim"]]:
    """Which means, and which scales, are off beyond tolerance and noise."""
    mean, scale = _beyond(found, settings.caution, settings)
    errors = significance(found.shift.size, settings)
    return (
        mean & (np.abs(found.shift) > errors * found.shift_error),
        scale & (np.abs(found.log_ratio) > errors * found.log_ratio_error),
    )


def unsure(
    found: Comparison, settings: Diagnostics = DEFAULT
) -> tuple[Bool[np.ndarray, " dim"], Bool[np.ndarray, " dim"]]:
    """Which means, and which scales, the estimates leave open."""
    (mean, scale), wrong = _beyond(found, settings.caution, settings), off(found, settings)
    near_mean, near_scale = _near(found, settings.margin, 1.0, settings)
    if found.shift.size <= settings.few:
        mean, scale = mean | near_mean, scale | near_scale
    else:
        mean, scale = near_mean, near_scale
    mean = mean | (found.shift_error > settings.sharp_mean)
    scale = scale | (found.log_ratio_error > settings.sharp_scale)
    return mean & ~wrong[0], scale & ~wrong[1]


def contradicted(found: Comparison, moved: Comparison, settings: Diagnostics = DEFAULT) -> bool:
    """Whether chains that are not sharp yet say that something is off which weights call right.

    Weights of a q that is too narrow state too small an error, so it takes longer chains to decide.
    """
    (mean, scale), (fine_mean, fine_scale) = (
        _beyond(each, settings.caution, settings) for each in (moved, found)
    )
    mean = mean & ~fine_mean & (np.abs(moved.shift - found.shift) > moved.shift_error)
    scale = scale & ~fine_scale & (np.abs(moved.log_ratio - found.log_ratio) > moved.log_ratio_error)
    return bool(np.any(mean) or np.any(scale))


def plain(found: Comparison, settings: Diagnostics = DEFAULT) -> bool:
    """Whether more chains would not change the answer: all is within tolerance, or something far off."""
    errors = significance(found.shift.size, settings)
    mean, scale = _beyond(_towards(found, -errors), 1.0, settings)
    far_mean, far_scale = off(found, settings)
    if np.any(mean & far_mean) or np.any(scale & far_scale):
        return True
    if found.shift.size > settings.few and missed(found, settings) > settings.mean:
        return False
    close = _near(found, settings.clear_margin, settings.caution, settings)
    return not any(map(np.any, (*close, *unsure(found, settings))))


def significance(numbers: int, settings: Diagnostics = DEFAULT) -> float:
    """Errors that an estimate must be away from zero to be called off.

    The largest of very many estimates is far from zero by noise alone.
    """
    return max(settings.significant, _largest(numbers, settings) if numbers > settings.few else 0.0)


def missed(found: Comparison, settings: Diagnostics = DEFAULT) -> float:
    """Posterior sds by which a single mean among very many could be off and not be called so."""
    return significance(found.shift.size, settings) * float(np.median(found.shift_error))


def _largest(numbers: int, settings: Diagnostics) -> float:
    """The size that the largest of so many normal errors exceeds with a chance of `false_alarms`."""
    return _normal_quantile(1 - 0.5 * settings.false_alarms / numbers)


@functools.lru_cache(maxsize=64)
def _normal_quantile(chance: float) -> float:
    return NormalDist().inv_cdf(chance)


def _near(
    found: Comparison, errors: float, share: float, settings: Diagnostics
) -> tuple[np.ndarray, np.ndarray]:
    """Which estimates come within so many errors of a share of the tolerance.

    Of very many numbers, some do by noise alone. There, only those count that noise does not explain.
    """
    mean, scale = _beyond(_towards(found, errors), share, settings)
    if found.shift.size <= settings.few:
        return mean, scale
    level = _largest(found.shift.size, settings)
    return (
        mean & (np.abs(found.shift) > level * found.shift_error),
        scale & (np.abs(found.log_ratio) > level * found.log_ratio_error),
    )


def _towards(found: Comparison, errors: float) -> Comparison:
    """Estimates moved away from zero by so many errors, or towards it."""
    with np.errstate(invalid="ignore"):
        return found._replace(
            shift=found.shift + np.sign(found.shift) * errors * found.shift_error,
            log_ratio=found.log_ratio + np.sign(found.log_ratio) * errors * found.log_ratio_error,
        )


def _beyond(found: Comparison, share: float, settings: Diagnostics) -> tuple[np.ndarray, np.ndarray]:
    """Which estimates exceed this share of the tolerance."""
    scale = (found.log_ratio < share * settings.narrow) | (found.log_ratio > share * settings.wide)
    return np.abs(found.shift) > share * settings.mean, scale
