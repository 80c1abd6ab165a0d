"""What going on would gain: the squared length of the ELBO's gradient in the fit's own metric.

Near an optimum a Newton step gains half of g' M^-1 g, the Newton decrement, where M is the curvature of
the ELBO: the precision of the target for locations, the Fisher information for scales. A slow ridge
shows here, where the last round of steps gained little. Groups of draws that are independent of each
other give g'M^-1 g without the part that is only noise, and a standard error.
"""

import math

import numpy as np
from jaxtyping import Float

from ..evaluation.elbo_terms import UNKNOWN, Difference
from ..evaluation.points import Points, sobol_pairs
from ..families import AbstractFamily, FitsQuadratic
from .draws import Draws
from .metric import Metric

GROUPS, PAIRS = 8, 64
TOO_STEEP = 1e100
# Coordinates up to which the scales of a full covariance are looked at pair by pair: 16 groups of them
# take 256 MB.
MOST_PAIRS_OF = 2000
# Of a question that these leave open: so many more groups, which is still far less than going on costs.
MORE_GROUPS = (32, 128)


def expected_gain(
    points: Points,
    q: FitsQuadratic,
    rng: np.random.Generator,
    precision: Float[np.ndarray, "dim dim"] | None = None,
    *,
    groups: int = GROUPS,
    pairs: int = PAIRS,
) -> Difference:
    """From fresh draws of q. `precision` is the target's; the inverse of q's covariance by default, and
    where the target has none: an improper one is flat in some direction."""
    root = None if precision is None else _root(precision)
    whitened = []
    for _ in range(groups):
        e = sobol_pairs(q.base, pairs, q.base_dim, rng)
        _, slope = points(q.host_transport(e))
        if not np.all(np.isfinite(slope)):
            return UNKNOWN
        mean = np.mean(slope, axis=0)
        location = q.whitened(mean) if root is None else np.linalg.solve(root, mean)
        whitened.append(np.concatenate([location, q.scale_gradient(e, slope)]))
    return paired_square(np.stack(whitened))


def conclusive_gain(
    left: Difference,
    points: Points,
    q: FitsQuadratic,
    rng: np.random.Generator,
    precision: Float[np.ndarray, "dim dim"] | None = None,
    *,
    worth: float,
) -> Difference:
    """What is left, with more draws where it takes them to tell whether that is `worth` nats.

    The scales of a full-rank family have as many directions as there are pairs of coordinates, and the
    noise of all of them adds up.
    """
    for groups in MORE_GROUPS:
        if left.non_negative.clearly_below(worth) or left.clearly_above(worth):
            break
        left = expected_gain(points, q, rng, precision, groups=groups)
    return left


def _root(precision: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"] | None:
    """A square root; None of a matrix that is singular in the digits there are, or empty."""
    try:
        return np.linalg.cholesky(precision) if precision.size else None
    except np.linalg.LinAlgError:
        return None


def paired_square(groups: Float[np.ndarray, "groups n"]) -> Difference:
    """Half the squared length of the mean of independent vectors, unbiased, by leaving one out.

    Infinite where squares are no numbers any more, as next to a spike.
    """
    count = len(groups)
    if not np.max(np.abs(groups), initial=0.0) < TOO_STEEP:
        return UNKNOWN

    total, squares = np.sum(groups, axis=0), np.einsum("ij,ij->i", groups, groups)
    # sum_{i != j} x_i'x_j = |T|^2 - S with T = sum x_i and S = sum |x_i|^2; without x_i it is smaller
    # by twice x_i'(T - x_i).
    pairs = float(total @ total - np.sum(squares))
    left = 0.5 * (pairs - 2 * (groups @ total - squares)) / ((count - 1) * (count - 2))
    error = math.sqrt((count - 1) * float(np.var(left)))
    return Difference(0.5 * pairs / (count * (count - 1)), error)


def gain_at(q: AbstractFamily, draws: Draws, metric: Metric) -> Difference:
    """The same from draws at hand, in the posterior's metric, for any family.

    A family that is not Gaussian is taken as if a shift and a scale of every coordinate followed it:
    what these could gain, it could.
    """
    center, whitened = np.mean(draws.z, axis=0), []
    for rows in np.split(np.arange(len(draws.z)), draws.groups):
        slope = draws.slope[rows]
        if not np.all(np.isfinite(slope)):
            return UNKNOWN
        location = metric.pull(np.mean(slope, axis=0)[None, :])[0]
        if isinstance(q, FitsQuadratic) and not (q.any_covariance and q.dim > MOST_PAIRS_OF):
            scales = q.scale_gradient(draws.e[rows], slope)
        else:
            scales = (1 + np.mean(slope * (draws.z[rows] - center), axis=0)) / math.sqrt(2)
        whitened.append(np.concatenate([location, scales]))
    return paired_square(np.stack(whitened))
