"""How far a fit has moved, grown or shrunk in each coordinate since its start: where to look first."""

import math

import numpy as np
from jaxtyping import Float

from .settings import DEFAULT, Propriety


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
