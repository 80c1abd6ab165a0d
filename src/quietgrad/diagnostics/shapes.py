"""Shapes that a Gaussian cannot follow, recognised from states of the posterior.

A funnel: the log distance of some coordinates from their mean depends on another coordinate. A banana:
one coordinate follows the square of another. Strong correlation between two coordinates.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from .metric import Metric
from .settings import DEFAULT, Diagnostics


class Shapes(NamedTuple):
    """`funnel`: a coordinate and those whose scale it drives. `banana`: bent one, driver. `straight`:
    two coordinates and their correlation. `neck`: how closely the scale of many follows one."""

    funnel: tuple[int, list[int]] | None = None
    banana: tuple[int, int] | None = None
    straight: tuple[int, int, float] | None = None
    neck: float = 0.0

    def at(self, coordinates: Int[np.ndarray, " some"]) -> "Shapes":
        """The same of shapes found among some of the coordinates, whose numbers these are."""
        place = [int(i) for i in coordinates]
        funnel, banana, straight, neck = self
        return Shapes(
            funnel and (place[funnel[0]], [place[i] for i in funnel[1]]),
            banana and (place[banana[0]], place[banana[1]]),
            straight and (place[straight[0]], place[straight[1]], straight[2]),
            neck,
        )


def shapes_of(
    states: Float[np.ndarray, "states dim"], metric: Metric, settings: Diagnostics = DEFAULT
) -> Shapes:
    """What stands out among states of the posterior."""
    if states.shape[1] < 2:
        return Shapes()
    std = np.std(states, axis=0)
    u = (states - np.mean(states, axis=0)) / np.where(std > 0, std, 1.0)
    funnel, banana = _funnel(u, settings), _banana(u, settings)
    if funnel is not None and banana is not None:
        # Each looks a little like the other: a square is small where its root is.
        funnel, banana = (None, banana) if banana[2] > funnel[2] else (funnel, None)
    found = funnel and funnel[:2], banana and banana[:2], _straight(metric, settings)
    return Shapes(*found, neck(states, settings))


def _funnel(
    u: Float[np.ndarray, "states dim"], settings: Diagnostics
) -> tuple[int, list[int], float] | None:
    """The coordinate that drives most others' scales, and the strongest correlation."""
    # Distances are taken from the median, which a skewed driver does not pull.
    size = np.log(np.abs(u - np.median(u, axis=0)) + 1e-3)
    driven = _correlations(u, size)
    np.fill_diagonal(driven, 0.0)
    strong = np.abs(driven) > settings.funnel
    if not strong.any():
        return None
    driver = int(np.argmax(np.sum(np.where(strong, np.abs(driven), 0.0), axis=1)))
    strength = float(np.max(np.abs(driven[driver])))
    return driver, [int(i) for i in np.flatnonzero(strong[driver])], strength


def neck(states: Float[np.ndarray, "states dim"], settings: Diagnostics = DEFAULT) -> float:
    """How closely the scale of many coordinates together follows one: a correlation.

    Of a coordinate with the average log distance of all those that it clearly drives, which has less
    noise than each of them: a scale that eight schools share shows as 0.3 in each and as 0.6 in all.
    """
    count, dim = states.shape
    if dim < 2:
        return 0.0
    std = np.std(states, axis=0)
    u = (states - np.median(states, axis=0)) / np.where(std > 0, std, 1.0)
    size = np.log(np.abs(u) + 1e-3)
    driven = _correlations(u, size)
    np.fill_diagonal(driven, 0.0)
    clear = np.abs(driven) > settings.significant / math.sqrt(count)
    together = np.where(clear, np.sign(driven), 0.0) @ size.T
    found = [_correlations(u[:, [i]], together[i][:, None])[0, 0] for i in range(dim) if clear[i].any()]
    return float(np.max(found, initial=0.0))


def _banana(u: Float[np.ndarray, "states dim"], settings: Diagnostics) -> tuple[int, int, float] | None:
    """The pair (bent, driver) with the clearest square dependence, beyond a linear one."""
    linear = _correlations(u, u)
    square = _correlations(u, u**2)
    skew = np.mean(u**3, axis=0)
    # What z_j owes to z_i^2 by their correlation and the skewness of z_i alone.
    rest = np.abs(square - linear * (skew / np.sqrt(np.maximum(np.var(u**2, axis=0), 1e-12)))[None, :])
    np.fill_diagonal(rest, 0.0)
    bent, driver = np.unravel_index(int(np.argmax(rest)), rest.shape)
    strength = float(rest[bent, driver])
    return (int(bent), int(driver), strength) if strength > settings.banana else None


def _straight(metric: Metric, settings: Diagnostics) -> tuple[int, int, float] | None:
    """The pair of coordinates with the highest correlation."""
    if not metric.dense:
        return None
    correlation = metric.covariance / np.outer(metric.std, metric.std)
    np.fill_diagonal(correlation, 0.0)
    a, b = np.unravel_index(int(np.argmax(np.abs(correlation))), correlation.shape)
    strength = float(correlation[a, b])
    return (int(a), int(b), strength) if abs(strength) > settings.straight else None


def _correlations(a: np.ndarray, b: np.ndarray) -> Float[np.ndarray, "dim dim"]:
    """Correlations of the columns of a with those of b."""
    a, b = a - np.mean(a, axis=0), b - np.mean(b, axis=0)
    lengths = np.outer(np.linalg.norm(a, axis=0), np.linalg.norm(b, axis=0))
    return (a.T @ b) / np.where(lengths > 0, lengths, 1.0)
