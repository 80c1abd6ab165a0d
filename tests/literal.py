"""Sums written out in NumPy as the paper writes them, and a sampler of given draws.

Symbols: L draws, J columns, p parameters; phi (L, p) per-draw gradients, columns (L, J).
"""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from quietgrad.estimators import AbstractEstimator
from quietgrad.estimators.samplers import AbstractSampler
from quietgrad.targets import Target

# The accuracy asked of fast forms, relative to the largest number. Rounding stays well below it: 400
# steps of double precision add at most 400 * 2.2e-16 * (columns, <= 1000) of the terms that are summed.
TOLERANCE = 1e-10


def assert_close(fast: Any, literal: Any) -> None:
    """Fail unless every leaf agrees to `TOLERANCE`, relative to the leaf's largest entry."""
    for x, y in zip(jax.tree.leaves(fast), jax.tree.leaves(literal), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        np.testing.assert_allclose(x, y, rtol=0, atol=TOLERANCE * np.max(np.abs(y)))


class GivenDraws(AbstractSampler):
    """Returns `e` whatever the key, so that different estimators see the same draws."""

    e: Float[Array, "draws base"]

    @property
    def independent(self) -> bool:
        return True

    def draw(self, state, base, shape, dtype, *, key):
        del state, base, key
        assert self.e.shape == shape
        assert self.e.dtype == dtype
        return self.e


def with_draws(estimator: AbstractEstimator, e: Float[Array, "draws base"]) -> AbstractEstimator:
    """The estimator with its sampler replaced by the draws `e`."""
    return replaced(estimator, "sampler", GivenDraws(e))


def replaced(estimator: AbstractEstimator, field: str, part: eqx.Module) -> AbstractEstimator:
    """The estimator with one of its parts exchanged."""
    # Parts without arrays are no leaves by themselves.
    kind = type(getattr(estimator, field))
    return eqx.tree_at(
        lambda tree: getattr(tree, field),
        estimator,
        part,
        is_leaf=lambda node: isinstance(node, kind),
    )


def bent_target(dim: int) -> Target:
    """Correlated and not quadratic, in any dimension."""
    shift = jnp.linspace(-1, 1, dim)

    def log_density(z: Float[Array, " dim"]) -> Float[Array, ""]:
        neighbours = jnp.sum(jnp.sin(z) * jnp.roll(z, 1))
        return -jnp.sum(jnp.logaddexp(2 * (z - shift), -z)) - 0.3 * neighbours - 0.2 * z @ z

    return Target.from_logdensity(log_density, dim=dim)


def stein_columns(e: np.ndarray, score: np.ndarray, order: int) -> np.ndarray:
    """The Stein operator on monomials of e, one column after the other."""
    dim = e.shape[1]
    columns = [score[:, j] for j in range(dim)]
    if order == 2:
        columns += [2 + 2 * e[:, j] * score[:, j] for j in range(dim)]
        pairs = [(i, j) for i in range(dim) for j in range(i + 1, dim)]
        columns += [e[:, j] * score[:, i] + e[:, i] * score[:, j] for i, j in pairs]
    return np.stack(columns, axis=1)


Fit = Callable[[np.ndarray, np.ndarray], np.ndarray]


def descent(steps: int, rate: float) -> Fit:
    """The inner loop of the paper's Algorithm 2 on (1/L) sum |phi + alpha + C beta|^2."""

    def fit(phi: np.ndarray, columns: np.ndarray) -> np.ndarray:
        draws = len(phi)
        alpha, beta = -np.mean(phi, axis=0), np.zeros((columns.shape[1], phi.shape[1]))
        for _ in range(steps):
            residual = phi + alpha + columns @ beta
            alpha = alpha - rate * 2 / draws * np.sum(residual, axis=0)
            beta = beta - rate * 2 / draws * columns.T @ residual
        return beta

    return fit


def ridge(penalty: float) -> Fit:
    """Normal equations of sum |phi + alpha + C beta|^2 + penalty |beta|^2, the intercept free."""

    def fit(phi: np.ndarray, columns: np.ndarray) -> np.ndarray:
        design = np.column_stack([np.ones(len(phi)), columns])
        penalties = penalty * np.diag(np.arange(design.shape[1]) > 0)
        return -np.linalg.solve(design.T @ design + penalties, design.T @ phi)[1:]

    return fit


def least_squares(phi: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """The shortest beta that minimises sum |phi + alpha + C beta|^2."""
    centred = columns - np.mean(columns, axis=0)
    return -np.linalg.lstsq(centred, phi - np.mean(phi, axis=0), rcond=1e-12)[0]


def adjusted_mean(
    phi: np.ndarray,
    columns: np.ndarray,
    fit: Fit,
    splits: Iterable[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """The mean of phi + C beta, with beta for the draws `out` fitted on the draws `kept`."""
    total = np.zeros(phi.shape[1])
    for kept, out in splits:
        beta = fit(phi[kept], columns[kept])
        total += np.sum(phi[out] + columns[out] @ beta, axis=0)
    return total / len(phi)


def in_sample(draws: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """One fit on all draws, applied to all draws."""
    return [(np.arange(draws), np.arange(draws))]


def blocks(count: int) -> Callable[[int], list[tuple[np.ndarray, np.ndarray]]]:
    """`count` consecutive blocks as equal as can be, the longer ones first."""

    def splits(draws: int) -> list[tuple[np.ndarray, np.ndarray]]:
        sizes = [draws // count + (k < draws % count) for k in range(count)]
        label = np.repeat(np.arange(count), sizes)
        return [(np.flatnonzero(label != k), np.flatnonzero(label == k)) for k in range(count)]

    return splits


def each(draws: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """One fit for each draw, on all the others."""
    return blocks(draws)(draws)
