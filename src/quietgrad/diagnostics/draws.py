"""Draws of q with everything that the diagnosis asks of them: densities, target values and gradients."""

import math
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from .._util.device import on_device
from ..evaluation.host_draws import sobol_pairs
from ..evaluation.points import Points
from ..families import AbstractFamily, OnHost

# Pairs that are quasi-random together; groups of them are independent of each other.
PAIRS = 64
LEAST_GROUPS = 4


class Draws(NamedTuple):
    """Points z of q, log q there, and the target's log density and gradient.

    `e` are their base draws. Rows come in `groups` of equal size.
    """

    e: Float[np.ndarray, "draws base"]
    z: Float[np.ndarray, "draws dim"]
    log_q: Float[np.ndarray, " draws"]
    values: Float[np.ndarray, " draws"]
    slope: Float[np.ndarray, "draws dim"]
    groups: int

    @property
    def finite(self) -> np.ndarray:
        """Where the log density and its gradient are finite."""
        return np.isfinite(self.values) & np.all(np.isfinite(self.slope), axis=1)

    @property
    def bad_share(self) -> float:
        """The share of draws at which they are not."""
        return 1 - float(np.mean(self.finite))

    @property
    def log_weights(self) -> Float[np.ndarray, " draws"]:
        """f(z) - log q(z); no weight where the density is not finite."""
        return np.where(self.finite, self.values - self.log_q, -math.inf)


def draw(q: AbstractFamily, points: Points, rng: np.random.Generator, draws: int) -> Draws:
    """At least `draws` of them; one gradient of the target each."""
    groups = max(LEAST_GROUPS, -(-draws // (2 * PAIRS)))
    e = [sobol_pairs(q.base, PAIRS, q.base_dim, rng) for _ in range(groups)]
    if isinstance(q, OnHost):
        # Without a program of its own.
        parts = [q.host_transport_and_log_prob(block) for block in e]
    else:
        parts = [jax.device_get(_carry(q, on_device(block, q.dtype))) for block in e]
    z = np.concatenate([part[0] for part in parts]).astype(float)
    log_q = np.concatenate([part[1] for part in parts]).astype(float)
    values, slope = points(z)
    return Draws(np.concatenate(e), z, log_q, values, slope, groups)


def moments(
    q: AbstractFamily, rng: np.random.Generator
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
    """Means and sds of q, from as many draws as a diagnosis takes at least; the target is not asked."""
    e = [sobol_pairs(q.base, PAIRS, q.base_dim, rng) for _ in range(LEAST_GROUPS)]
    z = np.concatenate([np.asarray(_carry(q, on_device(block, q.dtype))[0], float) for block in e])
    return np.mean(z, axis=0), np.std(z, axis=0)


@eqx.filter_jit
def _carry(
    q: AbstractFamily, e: Float[Array, "draws base"]
) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
    return jax.vmap(q.transport_and_log_prob)(e)
