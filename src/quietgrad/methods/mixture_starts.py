"""Where the components of a mixture begin: at the modes that climbs find, or at parts of weighted draws.

Modes have their Laplace covariance, and weights by their local evidence, f(mode) + log det C_k. Where
there is one mode, or none that helps, draws of the present answer are weighted by importance, and the
EM algorithm fits a mixture to them (maximum likelihood, that is KL(p||q)); it asks the target nothing.
"""

from collections.abc import Callable

import numpy as np
import scipy.linalg
import scipy.special
from jaxtyping import Float

from ..diagnostics.climbs import climb, far_starts
from ..diagnostics.draws import Draws
from ..diagnostics.metric import metric_of
from ..evaluation.points import Points
from ..families import Components
from ..solvers import ModeSearch

# Squared distance in a mode's own sds at which another climb has led to the same mode.
SAME = 0.1
# Nats of local evidence below the best at which a mode does not matter: a weight of 1e-3.
MATTERS = 7.0
# Restarts and iterations of EM, and the least variance of a component relative to that of all draws.
RESTARTS, ITERATIONS, LEAST = 4, 40, 1e-3
# Weights are cut off at this many times the root of their number, times their mean (Ionides 2008).
CUT = 1.0


def at_modes(
    search: ModeSearch,
    points: Points,
    drawn: Draws,
    rng: np.random.Generator,
    check: Callable[[], None],
    *,
    climbs: int,
    trials: int,
    most: int,
) -> Components | None:
    """A component at each of the `most` best modes that climbs lead to; None if there is none."""
    metric = metric_of(drawn)
    ends, heights = climb(points, metric, far_starts(metric, rng, climbs), trials)
    found = []
    for place in np.argsort(-heights):
        if not np.isfinite(heights[place]) or len(found) == most:
            break
        z = ends[place]
        if any(_same(z - mode.z, mode.precision) for mode, _ in found):
            continue
        mode = search.settle(points, z, -float(heights[place]), check)
        if mode is None or any(_same(mode.z - other.z, other.precision) for other, _ in found):
            continue
        found.append((mode, _root(mode.precision)))
    if not found:
        return None
    loc, root = (np.stack(parts) for parts in zip(*((m.z, r) for m, r in found), strict=True))
    evidence = points(loc)[0] + np.sum(np.log(np.diagonal(root, axis1=1, axis2=2)), axis=1)
    kept = evidence > np.max(evidence) - MATTERS
    return Components(evidence[kept] - scipy.special.logsumexp(evidence[kept]), loc[kept], root[kept])


def at_parts(drawn: Draws, count: int, rng: np.random.Generator) -> Components:
    """`count` components that fit the weighted draws best, of some random starts of EM."""
    keep = drawn.finite
    z, log_weights = drawn.z[keep], drawn.log_weights[keep]
    weights = np.exp(log_weights - np.max(log_weights))
    weights = np.minimum(weights, CUT * np.sqrt(len(weights)) * np.mean(weights))
    weights /= np.sum(weights)
    mean = weights @ z
    root = np.linalg.cholesky((z - mean).T @ ((z - mean) * weights[:, None]) + 1e-12 * np.eye(len(mean)))
    u = scipy.linalg.solve_triangular(root, (z - mean).T, lower=True).T
    fits = [_em(u, weights, count, rng) for _ in range(RESTARTS)]
    _, found = max(fits, key=lambda fit: fit[0])
    return Components(found.log_weights, mean + found.loc @ root.T, root @ found.root)


def _em(
    u: Float[np.ndarray, "n dim"], weights: Float[np.ndarray, " n"], count: int, rng: np.random.Generator
) -> tuple[float, Components]:
    """The weighted log likelihood and the components, from random parts of the draws."""
    dim = u.shape[1]
    centers = u[rng.choice(len(u), count, p=weights)]
    shares = scipy.special.softmax(-np.sum((u[:, None] - centers) ** 2, axis=2), axis=1)
    value, found = -np.inf, None
    for _ in range(ITERATIONS):
        mass = np.maximum(weights @ shares, np.finfo(float).tiny)
        part = weights[:, None] * shares / mass
        loc = part.T @ u
        gap = u[:, None] - loc
        covariance = np.einsum("nk,nki,nkj->kij", part, gap, gap) + LEAST * np.eye(dim)
        found = Components(np.log(mass), loc, np.linalg.cholesky(covariance))
        x = np.stack(
            [
                scipy.linalg.solve_triangular(root, gap[:, k].T, lower=True).T
                for k, root in enumerate(found.root)
            ],
            axis=1,
        )
        log_det = np.sum(np.log(np.diagonal(found.root, axis1=1, axis2=2)), axis=1)
        joint = found.log_weights - log_det - 0.5 * np.sum(x**2, axis=2)
        total = np.asarray(scipy.special.logsumexp(joint, axis=1))
        shares, value = np.exp(joint - total[:, None]), float(weights @ total)
    assert found is not None
    return value, found


def _root(precision: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """The lower triangular root of the inverse."""
    upper = np.linalg.cholesky(precision)
    root = np.linalg.qr(np.linalg.inv(upper))[1].T
    return root * np.sign(np.diagonal(root))


def _same(away: Float[np.ndarray, " dim"], precision: Float[np.ndarray, "dim dim"]) -> bool:
    return bool(away @ precision @ away < SAME)
