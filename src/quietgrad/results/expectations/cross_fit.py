"""Zero-variance control variates for draws of chains, fitted to each chain on the others.

The same fits as `stein_weights(..., folds=KFold(chains), scaling="whiten")`, draw by draw: what is left
of a function after its control variates is a series with the same mean, whose error can be estimated. In
double precision on the host: nothing is compiled, and sums over all chains but one are differences.
"""

from collections.abc import Sequence

import numpy as np
import scipy.linalg
from jaxtyping import Float

Draws = Float[np.ndarray, "draws dim"]
Values = Float[np.ndarray, "draws numbers"]
Columns = Float[np.ndarray, "draws columns"]

# Added to a correlation matrix, for draws that lie on a plane.
JITTER = 1e-9


def whitened(points: Draws, scores: Draws) -> tuple[Draws, Draws]:
    """Points with mean zero and the identity as covariance, and the scores in these coordinates."""
    centred, std = points - np.mean(points, axis=0), np.std(points, axis=0)
    std = np.where(std > 0, std, 1.0)
    centred = centred / std
    root = np.linalg.cholesky(centred.T @ centred / len(points) + JITTER * np.eye(len(std)))
    return scipy.linalg.solve_triangular(root, centred.T, lower=True).T, (scores * std) @ root


def stein_columns(points: Draws, scores: Draws, order: int) -> Columns:
    """The Stein operator on monomials, as `Polynomial(order).columns` has them."""
    if order == 1:
        return scores
    i, j = np.triu_indices(points.shape[1], 1)
    pairs = points[:, j] * scores[:, i] + points[:, i] * scores[:, j]
    return np.concatenate([scores, 2 + 2 * points * scores, pairs], axis=1)


def column_count(dim: int, order: int) -> int:
    """How many columns there are."""
    return dim if order == 1 else dim + dim * (dim + 1) // 2


def cross_fitted(
    columns: Columns, values: Values, groups: Sequence[slice], penalties: Sequence[float]
) -> list[Values]:
    """values + columns @ beta for each penalty, with beta for a group of draws from all the others.

    A penalty is relative to the mean diagonal of the Gram matrix. Costs one product of the columns with
    themselves, and an eigendecomposition for each group.
    """
    # Sums of products of a constant and the columns with themselves and with the values.
    left_side = np.concatenate([np.ones((len(columns), 1)), columns], axis=1)
    both_sides = np.concatenate([left_side, values], axis=1)
    moments = [left_side[g].T @ both_sides[g] for g in groups]
    whole, left = np.sum(moments, axis=0), [np.empty_like(values) for _ in penalties]
    for own, group in zip(moments, groups, strict=True):
        spectrum, vectors, target, scale = _centred(whole - own)
        turned, product = columns[group] @ vectors, vectors.T @ target
        for out, penalty in zip(left, penalties, strict=True):
            beta = product / (spectrum + penalty * scale)[:, None]
            out[group] = values[group] - turned @ beta
    return left


def _centred(moments: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Eigenvalues and -vectors of C'HC, C'H phi, and the mean diagonal of CC'."""
    side = len(moments)
    count, sums = moments[0, 0], moments[1:, :1]
    inner = moments[1:] - sums * moments[:1] / count
    spectrum, vectors = np.linalg.eigh(inner[:, 1:side])
    # No direction has less than rounding makes of none.
    floor = side * np.finfo(float).eps * max(float(spectrum[-1]), np.finfo(float).tiny)
    scale = float(np.trace(moments[1:, 1:side]) / count)
    return np.maximum(spectrum, floor), vectors, inner[:, side:], scale
