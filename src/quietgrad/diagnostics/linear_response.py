"""Linear-response covariances (Giordano, Broderick & Jordan 2018): scales and correlations that q lacks.

Tilt the target by t'z. The posterior mean then moves by Cov(z) t, so d E_q z / dt at the optimum of the
tilted ELBO estimates Cov(z). With E_q z = loc, that is the loc block of (-Hessian of the ELBO)^-1. It is
exact for a Gaussian posterior, even where q is mean-field. One row is one linear system, solved by
conjugate gradients on products with the Hessian of the ELBO at fixed draws; no matrix is formed.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .._numerics.lapack import over_points
from .._util.compiling import program
from .._util.device import on_device
from ..evaluation.points import sobol_pairs
from ..families import AbstractFamily, HasEntropy, HasMoments, split
from ..targets import Target

# Antithetic pairs; systems solved at once; iterations of conjugate gradients, at most.
PAIRS, AT_ONCE, MOST_ITERATIONS = 64, 16, 500
# Numbers (draws x rows x systems) that a product may hold.
WORK = 2**25
LEAST_PAIRS = 8


class LinearResponse(NamedTuple):
    """What the posterior covariance is estimated to be.

    `std` has the sd of each of `coordinates`, and `covariance` their covariances, if these were asked
    for. `products` counts products with the ELBO's Hessian, each of which costs about two gradients of
    the target for each of `draws` draws. `residual` is the largest relative error left in a system.
    """

    coordinates: tuple[int, ...]
    std: Float[np.ndarray, " coordinates"]
    covariance: Float[np.ndarray, "coordinates coordinates"] | None
    products: int
    draws: int
    residual: float


def refuses(q: AbstractFamily) -> str | None:
    """Why there is no linear response of this family."""
    if isinstance(q, HasMoments) and isinstance(q, HasEntropy):
        return None
    return (
        f"linear response needs a location-scale family with a known entropy, such as mean-field; "
        f"{type(q).__name__} is none: its draws, and result.posterior, are what there is"
    )


def linear_response(
    target: Target,
    q: AbstractFamily,
    rng: np.random.Generator,
    coordinates: Sequence[int] | None = None,
    *,
    tolerance: float = 1e-4,
) -> LinearResponse:
    """Covariances of some coordinates, or the sds of all. The fit has to be at its optimum."""
    reason = refuses(q)
    if reason is not None:
        raise ValueError(reason)
    assert isinstance(q, HasMoments)
    chosen = _checked(coordinates, q.dim)
    pairs = max(LEAST_PAIRS, min(PAIRS, WORK // (2 * AT_ONCE * max(target.rows, q.dim))))
    e = on_device(sobol_pairs(q.base, pairs, q.base_dim, rng), q.dtype)
    places, diagonal = _layout(q)

    def product(v: Float[np.ndarray, "systems params"]) -> Float[np.ndarray, "systems params"]:
        padded = np.zeros((AT_ONCE, v.shape[1]))
        padded[: len(v)] = v
        return np.asarray(_minus_hessian(target, q, e, on_device(padded, q.dtype)), float)[: len(v)]

    rows, products, worst = [], 0, 0.0
    for first in range(0, len(chosen), AT_ONCE):
        some = chosen[first : first + AT_ONCE]
        wanted = np.zeros((len(some), diagonal.size))
        wanted[np.arange(len(some)), places[some]] = 1.0
        solved, count, residual = _solve(product, wanted, diagonal, tolerance)
        rows.append(solved[:, places])
        products, worst = products + count, max(worst, residual)
    covariance = np.concatenate(rows)[:, chosen]
    covariance = 0.5 * (covariance + covariance.T)
    std = np.sqrt(np.diagonal(covariance))
    full = None if coordinates is None else covariance
    return LinearResponse(tuple(map(int, chosen)), std, full, products, 2 * pairs, worst)


def _checked(coordinates: Sequence[int] | None, dim: int) -> np.ndarray:
    chosen = np.arange(dim) if coordinates is None else np.asarray(coordinates)
    fine = chosen.ndim == 1 and chosen.size and np.issubdtype(chosen.dtype, np.integer)
    if not fine or chosen.min() < 0 or chosen.max() >= dim:
        raise ValueError(
            f"coordinates must be a list of whole numbers from 0 to {dim - 1}; got {coordinates!r}"
        )
    return chosen


def _layout(q: Any) -> tuple[np.ndarray, np.ndarray]:
    """Where loc is among the flat parameters, and what roughly inverts the Hessian's diagonal."""
    params, _ = split(q)
    numbers = eqx.tree_at(
        lambda p: p.loc, jax.tree.map(jnp.zeros_like, params), jnp.arange(1.0, q.dim + 1, dtype=q.dtype)
    )
    flat = np.asarray(ravel_pytree(numbers)[0])
    places = np.argsort(flat, kind="stable")[flat.size - q.dim :]
    # Scales on the log scale have Fisher information 2; entries of factors are left as they are.
    diagonal = np.full(flat.size, 0.5)
    diagonal[places] = np.asarray(q.variance(), float)
    return places, diagonal


def _solve(
    product: Callable[[np.ndarray], np.ndarray],
    wanted: Float[np.ndarray, "systems params"],
    diagonal: Float[np.ndarray, " params"],
    tolerance: float,
) -> tuple[Float[np.ndarray, "systems params"], int, float]:
    """Preconditioned conjugate gradients on several right-hand sides side by side."""
    x, residual = np.zeros_like(wanted), wanted.copy()
    direction = scaled = residual * diagonal
    size = start = np.sum(residual * scaled, axis=1)
    count = 0
    for _ in range(MOST_ITERATIONS):
        going = size > tolerance**2 * start
        if not going.any():
            break
        turned = product(direction)
        count += int(np.count_nonzero(going))
        bend = np.sum(direction * turned, axis=1)
        if np.any(bend[going] <= 0) or not np.all(np.isfinite(bend)):
            raise ValueError(
                "the ELBO is not curved downwards at this fit, so it is not at an optimum; look at "
                "result.diagnose(), or let the fit go on"
            )
        step = np.where(going, size / np.where(going, bend, 1.0), 0.0)[:, None]
        x, residual = x + step * direction, residual - step * turned
        scaled = residual * diagonal
        after = np.where(going, np.sum(residual * scaled, axis=1), size)
        direction = scaled + (after / size)[:, None] * direction
        size = after
    return x, count, math.sqrt(float(np.max(size / start)))


@program
def _minus_hessian(
    target: Target, q: AbstractFamily, e: Float[Array, "draws base"], v: Float[Array, "systems params"]
) -> Float[Array, "systems params"]:
    """Products of minus the Hessian of the ELBO at these draws with the rows of v."""
    params, build = split(q)
    flat, unravel = ravel_pytree(params)

    def elbo(flat: Float[Array, " params"]) -> Float[Array, ""]:
        member: Any = build(unravel(flat))
        values = over_points(target.log_density, jax.vmap(member.transport)(e))
        return jnp.mean(values) + member.entropy()

    _, push = jax.linearize(jax.grad(elbo), flat)
    return -jax.vmap(push)(v)
