"""Gaussian linear models with known noise: the posterior is Gaussian, its moments are a formula."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import quietgrad as qg

from .densities import normal, normals
from .model import Model, Moments


def conjugate(
    about: str,
    x: Float[np.ndarray, "rows dim"],
    y: Float[np.ndarray, " rows"],
    noise: float,
    prior_std: Float[np.ndarray, " dim"],
) -> Model:
    """y ~ N(x z, noise²) with z ~ N(0, prior_std²)."""
    # Solved in units of the prior, where the precision is well scaled however odd the units are.
    scaled = x * prior_std
    covariance = np.linalg.inv(scaled.T @ scaled / noise**2 + np.eye(x.shape[1]))
    mean = prior_std * (covariance @ scaled.T @ y) / noise**2
    exact = Moments(mean, prior_std * np.sqrt(np.diag(covariance)), "conjugate normal regression")
    target = qg.Target(
        lambda z: normals(z, 0.0, jnp.asarray(prior_std)),
        lambda z, data: normal(data[1], data[0] @ z, noise),
        (x, y),
        dim=x.shape[1],
    )
    return Model(about, target, exact=exact)


def regression() -> Model:
    """Four predictors, fifty rows."""
    rng = np.random.default_rng(101)
    x = np.column_stack([np.ones(50), rng.normal(size=(50, 3))])
    y = x @ np.array([1.0, -2.0, 0.5, 0.0]) + 0.7 * rng.normal(size=50)
    return conjugate("conjugate regression, 4 coefficients", x, y, 0.7, np.full(4, 5.0))


def units() -> Model:
    """Predictors in units from 1e-5 to 1e5: so are the coefficients, the other way round."""
    rng = np.random.default_rng(102)
    unit = 10.0 ** np.array([-5, -3, 0, 2, 5])
    common = rng.normal(size=(80, 1))
    x = (common + rng.normal(size=(80, 5))) / unit
    z = unit * rng.normal(size=5)
    y = x @ z + rng.normal(size=80)
    return conjugate("coefficients of sizes 1e-5 to 1e5", x, y, 1.0, 10 * unit)


def collinear() -> Model:
    """Two predictors that differ by a thousandth of their spread."""
    rng = np.random.default_rng(103)
    x = rng.normal(size=(60, 4))
    x[:, 1] = x[:, 0] + 1e-3 * rng.normal(size=60)
    y = x @ np.array([1.0, 1.0, -0.5, 0.3]) + 0.5 * rng.normal(size=60)
    return conjugate("two nearly equal predictors", x, y, 0.5, np.full(4, 10.0))


def smoothing() -> Model:
    """A Gaussian random walk seen with noise: fifty coordinates, neighbours correlated at 0.97."""
    rng = np.random.default_rng(104)
    steps, step_std, noise = 50, 0.2, 1.0
    walk = np.cumsum(step_std * rng.normal(size=steps))
    y = walk + noise * rng.normal(size=steps)
    difference = np.eye(steps) - np.eye(steps, k=-1)
    precision = difference.T @ difference / step_std**2 + np.eye(steps) / noise**2
    covariance = np.linalg.inv(precision)
    exact = Moments(covariance @ y / noise**2, np.sqrt(np.diag(covariance)), "Gaussian smoothing")
    target = qg.Target(
        lambda z: normals(jnp.diff(z, prepend=0.0), 0.0, step_std),
        lambda z, y: normal(y, z, noise),
        y,
        dim=steps,
    )
    return Model("Gaussian random walk with known scales", target, exact=exact)


MODELS = {
    "conjugate-regression": regression,
    "units": units,
    "collinear": collinear,
    "smoothing": smoothing,
}
