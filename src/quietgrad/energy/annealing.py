"""log Z by annealed importance sampling (Neal 2001), from a normal distribution with the rows' moments.

Points go through E_b = (1 - b) E_0 + b E for b from 0 to 1 in MALA steps, and collect the log of a
weight whose mean is Z. Step sizes come from points of their own that went ahead, so that the weights
stay unbiased.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Key, PyTree

from .._util.compiling import program
from .moves import Mala, placed
from .problem import AbstractEnergy, EnergyProblem

# Points that go ahead to find step sizes.
AHEAD = 64
# Added to the rows' correlations, for rows on a plane and for pixels that never change.
JITTER = 1e-2


class LogZ(NamedTuple):
    """log Z with its standard error, and the effective number of points by their weights.

    An effective number of a few says that the error itself is not known: give more temperatures.
    """

    value: float
    error: float
    size: float


class _Base(NamedTuple):
    mean: Float[Array, " dim"]
    root: Float[Array, "dim dim"]


class _Between(AbstractEnergy):
    """(1 - b) E_0 + b E, with parameters (b, those of E, those of E_0)."""

    model: AbstractEnergy

    def __call__(self, params: PyTree, x: Float[Array, " dim"]) -> Float[Array, ""]:
        inverse_temperature, own, base = params
        return (1 - inverse_temperature) * _base_energy(base, x) + inverse_temperature * self.model(
            own, x
        )


def annealed(
    problem: EnergyProblem,
    params: PyTree,
    *,
    temperatures: int,
    points: int,
    key: Key[Array, ""],
) -> LogZ:
    """One gradient for each point and temperature."""
    base = _base_of(np.asarray(problem.data, float), problem.data.dtype)
    log_weights = np.asarray(_weights(problem, params, base, temperatures, points, key), float)
    largest = np.max(log_weights)
    weights = np.exp(log_weights - largest)
    mean = np.mean(weights)
    error = np.std(weights, ddof=1) / mean / math.sqrt(points)
    return LogZ(
        float(largest + np.log(mean)), float(error), float(np.sum(weights) ** 2 / np.sum(weights**2))
    )


@program
def _weights(
    problem: EnergyProblem,
    params: PyTree,
    base: _Base,
    temperatures: int,
    points: int,
    key: Key[Array, ""],
) -> Float[Array, " points"]:
    dtype, move = problem.data.dtype, Mala()
    between = _Between(problem.model)
    path = jnp.linspace(0, 1, temperatures + 1, dtype=dtype)
    first = jnp.log(jnp.asarray(move.start(problem.dim), dtype))

    def run(count: int, steps: Array | None, key: Key[Array, ""]) -> tuple[Array, Array]:
        key_start, key_path = jr.split(key)
        x = base.mean[None, :] + jr.normal(key_start, (count, problem.dim), dtype) @ base.root.T
        keys = jr.split(key_path, temperatures)

        def onward(carry: tuple[Array, Array, Array], item: tuple[Array, Array, Array, Array]):
            x, log_weight, log_step = carry
            before, after, given, key = item
            # What the next temperature makes of the point: (b' - b) (E_0 - E).
            ends = jnp.stack([jnp.zeros_like(before), jnp.ones_like(before)])
            energy = jax.vmap(lambda b: jax.vmap(between, in_axes=(None, 0))((b, params, base), x))(ends)
            log_weight = log_weight + (after - before) * (energy[0] - energy[1])
            size = log_step if steps is None else given
            chains = placed(between, (after, params, base), x, size)
            chains = move(
                between, (after, params, base), chains, problem.scale, adapt=steps is None, key=key
            ).chains
            return (chains.x, log_weight, chains.log_step), chains.log_step

        given = jnp.zeros(temperatures, dtype) if steps is None else steps
        items = path[:-1], path[1:], given, keys
        carry, sizes = jax.lax.scan(onward, (x, jnp.zeros(count, dtype), first), items)
        return carry[1], sizes

    key_ahead, key = jr.split(key)
    _, sizes = run(AHEAD, None, key_ahead)
    return run(points, sizes, key)[0]


def _base_of(data: Float[np.ndarray, "rows dim"], dtype: np.dtype) -> _Base:
    mean, std = np.mean(data, axis=0), np.std(data, axis=0)
    std = np.where(std > 0, std, 1.0)
    centred = (data - mean) / std
    correlation = centred.T @ centred / len(data)
    root = std[:, None] * np.linalg.cholesky((1 - JITTER) * correlation + JITTER * np.eye(len(std)))
    return _Base(jnp.asarray(mean, dtype), jnp.asarray(root, dtype))


def _base_energy(base: _Base, x: Float[Array, " dim"]) -> Float[Array, ""]:
    """Minus the log density, with its constant."""
    e = solve_triangular(base.root, x - base.mean, lower=True)
    constant = 0.5 * x.shape[0] * math.log(2 * math.pi) + jnp.sum(jnp.log(jnp.diagonal(base.root)))
    return 0.5 * jnp.sum(e**2) + constant
