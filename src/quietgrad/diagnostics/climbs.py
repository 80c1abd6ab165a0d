"""Many climbs to modes at once: L-BFGS in lockstep, one batch of gradients for a trial step of all.

Starts are spread far beyond q. A climb whose trial step fails tries a shorter one while others go on.
"""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..evaluation.points import Points
from .draws import Draws
from .metric import Metric
from .settings import DEFAULT, Diagnostics

# Draws among which starts that are far from each other are looked for.
AMONG = 512


class Climbed(NamedTuple):
    """Where climbs are, the log density there, and what another step of theirs promises to add to it.

    The promise is half of g' H^-1 g, with their own H: it does not depend on the metric.
    """

    ends: Float[np.ndarray, "climbs dim"]
    heights: Float[np.ndarray, " climbs"]
    promises: Float[np.ndarray, " climbs"]


def far_starts(
    metric: Metric, rng: np.random.Generator, count: int, settings: Diagnostics = DEFAULT
) -> Float[np.ndarray, "count dim"]:
    """Two thirds ever further from q in random directions, the mirror image of q, and some near zero."""
    dim, far = metric.center.size, 2 * count // 3
    scales = np.geomspace(settings.nearest, settings.furthest, far)[:, None]
    out = metric.center + metric.push(scales * rng.standard_normal((far, dim)))
    near = rng.uniform(-settings.box, settings.box, (count - far - 1, dim))
    return np.concatenate([out, -metric.center[None, :], near])


def spread_out(drawn: Draws, rng: np.random.Generator, count: int) -> Float[np.ndarray, "count dim"]:
    """Draws of q that are far from each other: each is the one furthest from those before it.

    So one of every group of draws is among them, if groups are further apart than they are wide.
    """
    z = drawn.z[rng.permutation(np.flatnonzero(drawn.finite))[:AMONG]]
    u = z / np.maximum(np.std(z, axis=0), np.finfo(float).tiny)
    chosen, distance = [0], np.full(len(z), math.inf)
    for _ in range(min(count, len(z)) - 1):
        distance = np.minimum(distance, np.sum((u - u[chosen[-1]]) ** 2, axis=1))
        chosen.append(int(np.argmax(distance)))
    return z[chosen]


def climb(
    points: Points,
    metric: Metric,
    z: Float[np.ndarray, "climbs dim"],
    trials: int,
    settings: Diagnostics = DEFAULT,
) -> Climbed:
    """Where the climbs are after so many trial steps."""
    z = _pulled_in(points, metric, z)

    def function(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope = points(metric.center + metric.push(x))
        bad = ~(np.isfinite(value) & np.all(np.isfinite(slope), axis=1))
        return np.where(bad, math.inf, -value), np.where(bad[:, None], 0.0, -metric.pull(slope))

    x = metric.whiten(z)
    count, dim = x.shape
    value, grad = function(x)
    moves, turns = np.zeros((2, settings.memory, count, dim))
    inverse = np.zeros((settings.memory, count))
    direction = -grad / np.maximum(1.0, np.linalg.norm(grad, axis=1, keepdims=True))
    step = np.ones(count)
    with np.errstate(all="ignore"):
        for _ in range(trials):
            trial = x + step[:, None] * direction
            height, slope = function(trial)
            ok = height <= value + settings.decrease * step * np.sum(direction * grad, axis=1)
            moved, turned = (trial - x)[ok], (slope - grad)[ok]
            bend = np.sum(moved * turned, axis=1)
            for memory, new in ((moves, moved), (turns, turned)):
                memory[:-1, ok], memory[-1, ok] = memory[1:, ok], new
            inverse[:-1, ok] = inverse[1:, ok]
            inverse[-1, ok] = np.where(bend > 1e-12, 1 / bend, 0.0)
            x, value = np.where(ok[:, None], trial, x), np.where(ok, height, value)
            grad = np.where(ok[:, None], slope, grad)
            step = np.where(ok, 1.0, settings.shorter * step)
            fresh = -_inverse_times(moves, turns, inverse, grad)
            uphill = np.sum(fresh * grad, axis=1) >= 0
            fresh = np.where(uphill[:, None], -grad, fresh)
            direction = np.where(ok[:, None], fresh, direction)
        promises = -0.5 * np.sum(direction * grad, axis=1)
    return Climbed(metric.center + metric.push(x), -value, promises)


def _inverse_times(
    moves: np.ndarray, turns: np.ndarray, inverse: np.ndarray, grad: np.ndarray
) -> np.ndarray:
    """The two-loop product for all climbs; a pair with inverse zero is none."""
    left, shares = grad.copy(), []
    for moved, turned, scale in zip(moves[::-1], turns[::-1], inverse[::-1], strict=True):
        share = scale * np.sum(moved * left, axis=1)
        left = left - share[:, None] * turned
        shares.append(share)
    length = np.sum(turns[-1] ** 2, axis=1) * inverse[-1]
    left = left / np.where(length > 0, length, 1.0)[:, None]
    for moved, turned, scale, share in zip(moves, turns, inverse, shares[::-1], strict=True):
        left = left + (share - scale * np.sum(turned * left, axis=1))[:, None] * moved
    return left


def _pulled_in(points: Points, metric: Metric, z: np.ndarray) -> np.ndarray:
    """Starts at which the density is not finite, pulled towards q until it is."""
    for _ in range(4):
        bad = ~np.isfinite(points(z)[0])
        if not bad.any():
            break
        z = np.where(bad[:, None], metric.center + 0.25 * (z - metric.center), z)
    return z
