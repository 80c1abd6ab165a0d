"""The best normal for a density of one or two dimensions: quadrature, and a search without slopes."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from hard_targets import HALF_LOG_2PI_E, HARD
from scipy.optimize import minimize

import quietgrad as qg

REACH, NOWHERE = 7.0, 1e100
STARTS = ((0.0, 0.0), (3.0, -0.5), (-3.0, -0.5), (0.0, 1.5), (8.0, -1.0), (13.0, -6.0))


def scale_of(parameters: np.ndarray, dim: int) -> np.ndarray:
    """The triangular scale; beyond mean-field its corner is the last parameter."""
    scale = np.diag(np.exp(parameters[dim : 2 * dim]))
    if len(parameters) > 2 * dim:
        scale[1, 0] = parameters[-1]
    return scale


@functools.cache
def best_elbo(name: str, *, correlated: bool) -> float:
    """The highest ELBO found from several starts."""
    hard, loss = HARD[name], minus_elbo(name)
    extra = [0.0] if correlated and hard.dim == 2 else []
    starts = [np.array([loc] * hard.dim + [log_std] * hard.dim + extra) for loc, log_std in STARTS]
    return max(top(loss, start) for start in starts if loss(start) < NOWHERE)


def local_best(name: str, q: qg.MeanField | qg.FullRank) -> float:
    """The top of the hill that q is on."""
    scale = np.linalg.cholesky(q.host_covariance())
    corner = [scale[1, 0]] if len(scale) == 2 and isinstance(q, qg.FullRank) else []
    start = np.concatenate([np.asarray(q.mean()), np.log(np.diagonal(scale)), corner])
    return top(minus_elbo(name), start)


def top(loss: Callable[[np.ndarray], float], start: np.ndarray) -> float:
    """Where a search leads, and one more from there, which a simplex that got stuck needs."""
    once = minimize(loss, start, method="Nelder-Mead", options={"maxfev": 2000, "fatol": 1e-4})
    return -minimize(loss, once.x, method="Nelder-Mead", options={"maxfev": 2000}).fun


@functools.cache
def minus_elbo(name: str) -> Callable[[np.ndarray], float]:
    """As a function of means, log scales and corner; nodes are those of the trapezoid rule in e."""
    hard = HARD[name]
    axis = np.linspace(-REACH, REACH, hard.nodes)
    e = np.stack(np.meshgrid(*[axis] * hard.dim, indexing="ij"), axis=-1).reshape(-1, hard.dim)
    weights = np.exp(-0.5 * np.sum(e**2, axis=1))
    weights /= weights.sum()
    values = jax.jit(jax.vmap(hard.fn))

    def loss(parameters: np.ndarray) -> float:
        scale = scale_of(parameters, hard.dim)
        f = np.asarray(values(jnp.asarray(parameters[: hard.dim] + e @ scale.T)), float)
        with np.errstate(all="ignore"):
            elbo = (
                float(weights @ f)
                + float(np.sum(np.log(np.diagonal(scale))))
                + hard.dim * HALF_LOG_2PI_E
            )
        return -elbo if np.isfinite(elbo) else NOWHERE

    return loss
