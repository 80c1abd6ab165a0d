"""Draws of the posterior: draws of q, resampled by Pareto-smoothed importance weights; or of chains."""

import math
from typing import Any

import equinox as eqx
import numpy as np

from .._util.device import on_device
from ..evaluation.points import Points
from ..families import AbstractFamily
from ..targets import Target
from .draws import draw
from .long_chains import ChainDraws
from .psis import smooth

# Draws of q for each draw of the posterior, and at least; more make repetitions rarer.
TIMES, LEAST = 4, 4000


class PosteriorDraws(eqx.Module):
    """Draws of q, resampled by importance weights, or draws of chains, and how far to rely on them.

    `points` are like those of `result.sample`. `khat` is the shape of the weights' tail, NaN for chains,
    and `effective` the number of independent posterior draws that they are worth.
    `reliable` is whether k-hat is below its limit. Points repeat where weights are large.
    """

    points: Any
    khat: float
    effective: float
    reliable: bool = eqx.field(static=True)
    kind: str = eqx.field(static=True)

    def __str__(self) -> str:
        return self.kind


def of_chains(found: ChainDraws, dtype: Any, rng: np.random.Generator, draws: int) -> PosteriorDraws:
    """Some of the draws of chains, without repetition as far as there are enough."""
    rows = rng.choice(len(found.z), draws, replace=draws > len(found.z))
    points = on_device(found.z[rows], dtype)
    return PosteriorDraws(points, math.nan, found.effective, found.enough, f"{draws:,} draws of {found}")


def resampled(target: Target, q: AbstractFamily, rng: np.random.Generator, draws: int) -> PosteriorDraws:
    """Resample `draws` out of several times as many; one gradient of the target for each of those."""
    drawn = draw(q, Points(target, q.dtype), rng, max(LEAST, TIMES * draws))
    weights = smooth(drawn.log_weights)
    size = drawn.log_q.size
    usable = weights.usable and weights.effective > 0
    if not weights.w.any():
        raise ValueError(
            "no draw of q has a finite log density, so there is nothing to resample; look at "
            "result.diagnose() and result.hint"
        )
    rows = weights.resample(rng, draws)
    points = on_device(drawn.z[rows], q.dtype)
    verb = "can be relied on" if usable else "cannot be relied on"
    kind = (
        f"{draws:,} importance-corrected draws, resampled from {size:,} draws of q that are worth "
        f"{weights.effective:,.0f}; k-hat {weights.khat:.2f} against a limit of {weights.limit:.2f}: "
        f"these weights {verb}"
    )
    return PosteriorDraws(points, weights.khat, weights.effective, usable, kind)
