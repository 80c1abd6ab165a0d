"""The best normal for a density of one or two dimensions: quadrature, and a search without slopes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from hard_targets import HALF_LOG_2PI_E, HARD
from scipy.optimize import minimize

REACH = 7.0
STARTS = ((0.0, 0.0), (3.0, -0.5), (-3.0, -0.5), (0.0, 1.5), (8.0, -1.0), (13.0, -6.0))


def scale_of(parameters: np.ndarray, dim: int) -> np.ndarray:
    """The triangular scale; beyond mean-field its corner is the last parameter."""
    scale = np.diag(np.exp(parameters[dim : 2 * dim]))
    if len(parameters) > 2 * dim:
        scale[1, 0] = parameters[-1]
    return scale


@functools.cache
def best_elbo(name: str, *, correlated: bool) -> float:
    """The highest ELBO found from several starts; nodes are those of the trapezoid rule in e."""
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
        return -elbo if np.isfinite(elbo) else 1e100

    extra = [0.0] if correlated and hard.dim == 2 else []
    found = []
    for loc, log_std in STARTS:
        start = np.array([loc] * hard.dim + [log_std] * hard.dim + extra)
        if loss(start) > 1e99:
            continue
        once = minimize(loss, start, method="Nelder-Mead", options={"maxfev": 2000, "fatol": 1e-4})
        found.append(minimize(loss, once.x, method="Nelder-Mead", options={"maxfev": 2000}).fun)
    return -min(found)
