"""Where the noise of the gradient is: by block of q's parameters, and by variable within a block."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from ... import estimators
from ...estimators import AbstractEstimator
from ...evaluation.gradient_noise import GradientVariance, gradient_variance
from ...families import AbstractFamily
from ...targets import Target
from .table import named


class Noise(NamedTuple):
    """Of a part of q's parameters: root mean squares of the gradient's sd and of its mean.

    `plain` is the sd with as many independent draws and nothing else.
    """

    label: str
    std: float
    mean: float
    plain: float


def gradient_noise(
    target: Target,
    q: AbstractFamily,
    estimator: AbstractEstimator | None,
    state: PyTree,
    *,
    repeats: int,
    key: Key[Array, ""],
) -> tuple[str, list[Noise]]:
    """What the estimator is called, and its noise at q on all rows, largest first.

    `Quiet` stands in for a fit without an estimator, or one whose estimator does not go with q.
    """
    if estimator is None or estimator.refuses(target, q) is not None:
        estimator, state = estimators.Quiet(), None
    draws = estimator.draws_for(q)
    both = [
        gradient_variance(target, q, one, state=its, repeats=repeats, key=key)
        for one, its in ((estimator, state), (estimators.Pathwise(draws=draws), None))
    ]
    ours, plain = (_parts(target, q, found) for found in both)
    rows = [Noise(label, *ours[label], plain[label][0]) for label in ours]
    # Arrays that q holds and draws do not depend on: those of the model that a hierarchy has within it.
    rows = [row for row in rows if row.std or row.mean or row.plain] or rows
    return estimator.title, sorted(rows, key=lambda row: -row.plain)


def _parts(target: Target, q: AbstractFamily, found: GradientVariance) -> dict[str, tuple[float, float]]:
    """Sd and mean of the gradient of each part; blocks with one number per coordinate are split."""
    owner = _owners(target, q.dim)
    parts: dict[str, tuple[float, float]] = {}
    leaves = jax.tree_util.tree_leaves_with_path(found.mean)
    for (path, mean), variance in zip(leaves, jax.tree.leaves(found.each), strict=True):
        block = jax.tree_util.keystr(path, simple=True, separator=".")
        mean, variance = np.asarray(mean, float), np.asarray(variance, float)
        if owner is None or mean.ndim == 0 or mean.shape[-1] != q.dim:
            parts[block] = _sizes(variance, mean)
            continue
        for name in dict.fromkeys(owner):
            mine = np.asarray([other == name for other in owner])
            parts[f"{block} of {name}"] = _sizes(variance[..., mine], mean[..., mine])
    return parts


def _sizes(variance: np.ndarray, mean: np.ndarray) -> tuple[float, float]:
    return float(np.sqrt(np.mean(np.maximum(variance, 0.0)))), float(np.sqrt(np.mean(mean**2)))


def _owners(target: Target, dim: int) -> list[str] | None:
    """The variable that each coordinate belongs to; None where points are vectors."""
    if target.unravel is None:
        return None
    tree = target.unravel(jnp.arange(dim, dtype=jnp.zeros(()).dtype))
    owner = [""] * dim
    for name, leaf in named(tree).items():
        for index in np.asarray(leaf, int).ravel():
            owner[int(index)] = name
    return owner
