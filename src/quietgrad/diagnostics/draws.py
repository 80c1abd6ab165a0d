"""Draws of q with everything that the diagnosis asks of them: densities, target values and gradients."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from .._numerics.lapack import over_points
from .._util.compiling import program
from .._util.device import on_device
from ..evaluation.points import Points, sobol_pairs
from ..families import AbstractFamily, HasHostDensity, OnHost
from .budget import Budget
from .settings import DEFAULT, Diagnostics

# Points at which log q is asked for together, and numbers of a block of coordinates.
AT_ONCE, BLOCK = 512, 2**20


class Draws(NamedTuple):
    """Points z of q, log q there, and the target's log density and gradient.

    `e` are their base draws. Rows come in `groups` of equal size. All z are finite: a draw beyond what
    numbers hold counts as one without a density, at the mean of the others.
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
        fine = np.isfinite(self.values)
        for some in self.blocks():
            fine &= np.all(np.isfinite(self.slope[:, some]), axis=1)
        return fine

    def blocks(self) -> Iterator[slice]:
        """Coordinates some at a time: copies of all draws would take as much memory as the draws."""
        each = max(1, BLOCK // max(1, len(self.z)))
        return (slice(first, first + each) for first in range(0, self.z.shape[1], each))

    @property
    def bad_share(self) -> float:
        """The share of draws at which they are not."""
        return 1 - float(np.mean(self.finite))

    @property
    def log_weights(self) -> Float[np.ndarray, " draws"]:
        """f(z) - log q(z); no weight where the density is not finite."""
        return np.where(self.finite, self.values - self.log_q, -math.inf)


def draw(
    q: AbstractFamily,
    points: Points,
    rng: np.random.Generator,
    draws: int,
    settings: Diagnostics = DEFAULT,
    budget: Budget | None = None,
) -> Draws:
    """At least `draws` of them, or as many as memory and the budget allow; one gradient of the target
    each."""
    budget = Budget() if budget is None else budget
    pairs, least = settings.pairs, settings.least_groups
    if 2 * pairs * least * q.dim > settings.most_numbers:
        pairs = settings.few_pairs
    groups = max(least, -(-draws // (2 * pairs)))
    groups = max(least, min(groups, settings.most_numbers // (2 * pairs * q.dim)))
    # Filled group by group; what is not filled takes no memory.
    room = 2 * pairs * groups
    e, z, slope = np.empty((room, q.base_dim)), np.empty((room, q.dim)), np.empty((room, q.dim))
    log_q, values = np.empty(room), np.empty(room)
    made = 0
    for number in range(groups):
        if number >= least and budget.spent > settings.draws_share * budget.seconds:
            break
        some = slice(2 * pairs * number, made := 2 * pairs * (number + 1))
        e[some] = sobol_pairs(q.base, pairs, q.base_dim, rng)
        z[some], log_q[some] = carry(q, e[some])
        # The first group may compile; the last one shows the pace of gradients.
        with budget.paced(2 * pairs):
            values[some], slope[some] = points(z[some])
    e, z, log_q, values, slope = e[:made], z[:made], log_q[:made], values[:made], slope[:made]
    held = np.all(np.isfinite(z), axis=1) & np.isfinite(log_q)
    if not np.all(held):
        center = np.mean(z[held], axis=0) if np.any(held) else np.zeros(q.dim)
        z, values = np.where(held[:, None], z, center), np.where(held, values, -math.inf)
    return Draws(e, z, log_q, values, slope, made // (2 * pairs))


def carry(
    q: AbstractFamily, e: Float[np.ndarray, "draws base"]
) -> tuple[Float[np.ndarray, "draws dim"], Float[np.ndarray, " draws"]]:
    """Points of q for base draws, as the target takes them, and log q there.

    A family with a form on the host is asked there, so that no program is compiled.
    """
    if isinstance(q, OnHost):
        z, log_q = q.host_transport_and_log_prob(e)
        return z.astype(q.dtype).astype(float), log_q
    z, log_q = jax.device_get(_carry(q, on_device(e, q.dtype)))
    return z.astype(float), log_q.astype(float)


def log_prob_at(q: AbstractFamily, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
    """log q at given points: in NumPy, or by a program for blocks of one size."""
    if isinstance(q, HasHostDensity):
        return q.host_log_prob_at(z)
    blocks = []
    for first in range(0, len(z), AT_ONCE):
        block = z[first : first + AT_ONCE]
        padded = np.concatenate([block, np.repeat(block[-1:], AT_ONCE - len(block), axis=0)])
        found = jax.device_get(_log_prob(q, on_device(padded, q.dtype)))
        blocks.append(np.asarray(found, float)[: len(block)])
    return np.concatenate(blocks)


def moments(
    q: AbstractFamily, rng: np.random.Generator, settings: Diagnostics = DEFAULT
) -> tuple[Float[np.ndarray, " dim"], Float[np.ndarray, " dim"]]:
    """Means and sds of q, from as many draws as a diagnosis takes at least; the target is not asked."""
    e = [sobol_pairs(q.base, settings.pairs, q.base_dim, rng) for _ in range(settings.least_groups)]
    z = np.concatenate([carry(q, block)[0] for block in e])
    return np.mean(z, axis=0), np.std(z, axis=0)


@program
def _log_prob(q: AbstractFamily, z: Float[Array, "points dim"]) -> Float[Array, " points"]:
    return over_points(q.log_prob, z)


@program
def _carry(
    q: AbstractFamily, e: Float[Array, "draws base"]
) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
    return jax.vmap(q.transport_and_log_prob)(e)
