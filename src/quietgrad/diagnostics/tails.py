"""How the log density falls off far from q: along coordinates, the widest and the flattest directions.

Log density against the log of the distance has a slope s far out. A proper density falls faster than
s = -1; a mean needs s < -2 and a variance s < -3. Tails of Gaussian or exponential kind have no such
slope: it grows with the distance.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..points import Points
from .metric import Metric

# How far out, in the larger of the posterior's scale and location.
FAR = (1e3, 1e5)
MOST_COORDINATES, WIDEST, FLATTEST = 48, 4, 2
# Slopes above these, with a margin for what is not yet asymptotic.
IMPROPER, NO_VARIANCE = -1.05, -3.1
# Nats by which q's mean may lie higher than a tail that begins at one posterior sd.
SLACK = 20.0


class Tail(NamedTuple):
    """A direction, as shares of the coordinates, in which the density falls like t^slope."""

    direction: Float[np.ndarray, " dim"]
    slope: float

    @property
    def improper(self) -> bool:
        """Whether the density cannot be normalised."""
        return self.slope > IMPROPER

    @property
    def coordinates(self) -> list[int]:
        """The coordinates that take most part, at most three."""
        size = np.abs(self.direction) / np.max(np.abs(self.direction))
        return [int(i) for i in np.argsort(-size)[:3] if size[i] > 0.3]


def slow_tails(
    points: Points, metric: Metric, slope: Float[np.ndarray, "draws dim"] | None = None
) -> list[Tail]:
    """Directions in which the density falls too slowly for a variance, the slowest first.

    `slope` are gradients. A direction in which all of them vanish, such as the difference of two
    intercepts, lies between the coordinates, and a metric made of averages has it only roughly.
    """
    center, std, dim = metric.center, metric.std, metric.center.size
    axes = np.eye(dim)[np.argsort(-std)[:MOST_COORDINATES]] * std
    if metric.dense and dim > 1:
        values, vectors = np.linalg.eigh(metric.covariance / np.outer(std, std))
        wide = vectors[:, np.argsort(-values)[: min(WIDEST, dim)]].T * std
        axes = np.concatenate([axes, wide])
    if slope is not None and dim > 1:
        _, vectors = np.linalg.eigh((slope * std).T @ (slope * std))
        axes = np.concatenate([axes, vectors[:, : min(FLATTEST, dim)].T * std])
    # Far out means far from zero as well.
    spans = np.maximum(1.0, np.max(np.abs(center / std), initial=0.0))
    sides = np.concatenate([axes, -axes]) * spans
    z = np.concatenate([center + t * sides for t in FAR])
    with np.errstate(all="ignore"):
        near, far = np.split(points(z)[0], 2)
        slopes = (far - near) / math.log(FAR[1] / FAR[0])
        # A tail this slow has not fallen far at its first point. A density that has is about zero there,
        # and flat because numbers end, not because mass goes on.
        fallen = points(center[None, :])[0] - near
        slopes[~(fallen < -NO_VARIANCE * math.log(FAR[0] * spans) + SLACK)] = -math.inf
    found = [
        Tail(side / std, float(slope))
        for side, slope in zip(sides, slopes, strict=True)
        if slope > NO_VARIANCE and math.isfinite(slope)
    ]
    return sorted(found, key=lambda tail: -tail.slope)
