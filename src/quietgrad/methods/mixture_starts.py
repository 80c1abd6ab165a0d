"""Where the components of a mixture begin: at the modes that climbs find, or at parts of weighted draws.

At a mode, Newton steps on gradients at a Gaussian's draws give it the mean and covariance of its own
(`diagnostics/local_mass.py`), from the curvature at the mode; its weight is its ELBO. Where there is one
mode, or none that helps, draws of the present answer are weighted by importance, and the EM algorithm
fits a mixture to them (maximum likelihood, that is KL(p||q)); it asks the target nothing.
"""

from collections.abc import Callable

import numpy as np
import scipy.linalg
import scipy.special
from jaxtyping import Float

from ..diagnostics.climbs import climb, far_starts
from ..diagnostics.draws import Draws, log_prob_at
from ..diagnostics.local_mass import Local, gaussian_around
from ..diagnostics.metric import metric_of
from ..evaluation.points import Points, sobol_pairs
from ..families import AbstractFamily, Components
from ..families.bases import Normal
from ..solvers import ModeSearch

# Squared distance in a mode's own sds at which another climb has led to the same mode.
SAME = 0.1
# Nats of local evidence below the best at which a mode does not matter: a weight of 1e-3.
MATTERS = 7.0
# Restarts and iterations of EM, and the least variance of a component relative to that of all draws.
RESTARTS, ITERATIONS, LEAST = 4, 40, 1e-3
# Weights are cut off at this many times the root of their number, times their mean (Ionides 2008).
CUT = 1.0
# Pairs of draws by which Gaussians at modes are compared.
PAIRS = 64


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
) -> list[Local]:
    """A Gaussian at each of the `most` best modes that climbs lead to."""
    metric = metric_of(drawn)
    ends, heights, _ = climb(points, metric, far_starts(metric, rng, climbs), trials)
    found = []
    for place in np.argsort(-heights):
        if not np.isfinite(heights[place]) or len(found) == most:
            break
        z = ends[place]
        if any(_same(z - mode.z, mode.precision) for mode in found):
            continue
        mode = search.settle(points, z, -float(heights[place]), check)
        if mode is None or any(_same(mode.z - other.z, other.precision) for other in found):
            continue
        found.append(mode)
    if not found:
        return []
    places = np.stack([mode.z for mode in found])
    return [_settled(points, mode.z, _root(mode.precision), places, rng) for mode in found]


def together(first: list[Local], more: list[Local]) -> list[Local]:
    """All of the first, and those others at whose places there is none yet."""
    found = list(first)
    for local in more:
        if not any(other.has(local.center) for other in found):
            found.append(local)
    return found


def weighted(points: Points, parts: list[Local], rng: np.random.Generator) -> Components | None:
    """Gaussians with weights by their ELBOs; those far below are left out."""
    dim = parts[0].center.size
    e = sobol_pairs(Normal(), PAIRS, dim, rng)
    loc = np.stack([part.center for part in parts])
    root = np.stack([triangular(part.root) for part in parts])
    z = loc[:, None] + np.einsum("kij,nj->kni", root, e)
    with np.errstate(all="ignore"):
        values = points(z.reshape(-1, dim))[0].reshape(z.shape[:2])
        elbo = np.mean(values, axis=1) + np.sum(np.log(np.diagonal(root, axis1=1, axis2=2)), axis=1)
    if not np.isfinite(elbo).any():
        return None
    kept = elbo > np.nanmax(np.where(np.isfinite(elbo), elbo, -np.inf)) - MATTERS
    return Components(elbo[kept] - scipy.special.logsumexp(elbo[kept]), loc[kept], root[kept])


def _settled(
    points: Points,
    center: Float[np.ndarray, " dim"],
    root: Float[np.ndarray, "dim dim"],
    modes: Float[np.ndarray, "modes dim"],
    rng: np.random.Generator,
) -> Local:
    """The Gaussian around a mode; that of the curvature there if it would spread over another mode."""
    fitted = gaussian_around(points, center, root, rng)
    if fitted is not None:
        local = Local(*fitted, 0.0, 0.0)
        if sum(local.has(mode) for mode in modes) == 1:
            return local
    return Local(center, root, 0.0, 0.0)


def pooled(drawn: Draws, q: AbstractFamily, others: list[Draws], locals_: list[Local]) -> Draws:
    """Draws of q and of Gaussians at places that it leaves out, as those of one mixture of them all.

    Its density is that of the draw's own share of each (the balance heuristic of Veach & Guibas 1995).
    """
    parts = [drawn, *others]
    z = np.concatenate([part.z for part in parts])
    counts = np.array([len(part.z) for part in parts])
    log_q = [np.concatenate([drawn.log_q, log_prob_at(q, z[counts[0] :])])]
    log_q += [local.log_prob(z) for local in locals_]
    shares = np.log(counts / counts.sum())[:, None]
    density = np.asarray(scipy.special.logsumexp(np.stack(log_q) + shares, axis=0))
    e, values, slope = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("e", "values", "slope")
    )
    return Draws(e, z, density, values, slope, drawn.groups)


def widened(parts: Components, wider: float) -> Components:
    """Every component twice, as it is and wider: draws that see tails without losing the middle."""
    log_weights = np.tile(parts.log_weights - np.log(2), 2)
    return Components(
        log_weights, np.tile(parts.loc, (2, 1)), np.concatenate([parts.root, wider * parts.root])
    )


def at_parts(
    drawn: Draws, count: int, rng: np.random.Generator, of: Components | None = None
) -> Components:
    """`count` components that fit the weighted draws best, of some random starts of EM.

    A mixture `of` half as many begins as each of them twice: narrower and wider, or to either side.
    """
    keep = drawn.finite
    z, log_weights = drawn.z[keep], drawn.log_weights[keep]
    weights = np.exp(log_weights - np.max(log_weights))
    weights = np.minimum(weights, CUT * np.sqrt(len(weights)) * np.mean(weights))
    weights /= np.sum(weights)
    mean = weights @ z
    root = np.linalg.cholesky((z - mean).T @ ((z - mean) * weights[:, None]) + 1e-12 * np.eye(len(mean)))
    u = scipy.linalg.solve_triangular(root, (z - mean).T, lower=True).T
    fits = []
    for number in range(RESTARTS):
        if of is None:
            centers = u[rng.choice(len(u), count, p=weights)]
            shares = scipy.special.softmax(-np.sum((u[:, None] - centers) ** 2, axis=2), axis=1)
        else:
            shares = _shares(_log_joint(_doubled(of, rng, aside=number > 0), z))[0]
        fits.append(_em(u, weights, shares))
    _, found = max(fits, key=lambda fit: fit[0])
    return Components(found.log_weights, mean + found.loc @ root.T, root @ found.root)


def _doubled(parts: Components, rng: np.random.Generator, *, aside: bool) -> Components:
    """Every component twice: at half and twice its variance, or moved by an sd `aside`."""
    sign = np.repeat([1.0, -1.0], len(parts.loc))
    loc, root = np.tile(parts.loc, (2, 1)), np.tile(parts.root, (2, 1, 1))
    if aside:
        direction = rng.standard_normal(parts.loc.shape)
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        loc = loc + sign[:, None] * np.einsum("kij,kj->ki", root, np.tile(direction, (2, 1)))
    else:
        root = root * 2.0 ** (0.5 * sign)[:, None, None]
    return Components(np.tile(parts.log_weights, 2), loc, root)


def _log_joint(parts: Components, u: Float[np.ndarray, "n dim"]) -> Float[np.ndarray, "n k"]:
    """log w_k N(u; m_k, C_k C_k'), up to a constant."""
    joint = []
    for log_weight, loc, root in zip(*parts, strict=True):
        x = scipy.linalg.solve_triangular(root, (u - loc).T, lower=True)
        joint.append(log_weight - np.sum(np.log(np.diagonal(root))) - 0.5 * np.sum(x**2, axis=0))
    return np.stack(joint, axis=1)


def _shares(joint: Float[np.ndarray, "n k"]) -> tuple[Float[np.ndarray, "n k"], Float[np.ndarray, " n"]]:
    """Each component's share of each point, and the log of their sum."""
    total = np.asarray(scipy.special.logsumexp(joint, axis=1))
    return np.exp(joint - total[:, None]), total


def _em(
    u: Float[np.ndarray, "n dim"], weights: Float[np.ndarray, " n"], shares: Float[np.ndarray, "n k"]
) -> tuple[float, Components]:
    """The weighted log likelihood and the components, from parts of the draws."""
    dim = u.shape[1]
    value, found = -np.inf, None
    for _ in range(ITERATIONS):
        mass = np.maximum(weights @ shares, np.finfo(float).tiny)
        part = weights[:, None] * shares / mass
        loc = part.T @ u
        gap = u[:, None] - loc
        covariance = np.einsum("nk,nki,nkj->kij", part, gap, gap) + LEAST * np.eye(dim)
        found = Components(np.log(mass), loc, np.linalg.cholesky(covariance))
        shares, total = _shares(_log_joint(found, u))
        value = float(weights @ total)
    assert found is not None
    return value, found


def _root(precision: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """The lower triangular root of the inverse."""
    return triangular(np.linalg.inv(np.linalg.cholesky(precision)).T)


def triangular(root: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, "dim dim"]:
    """The lower triangular root of the same covariance, root root'."""
    lower = np.linalg.qr(root.T)[1].T
    return lower * np.sign(np.diagonal(lower))


def _same(away: Float[np.ndarray, " dim"], precision: Float[np.ndarray, "dim dim"]) -> bool:
    return bool(away @ precision @ away < SAME)
