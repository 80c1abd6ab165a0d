"""Linear models with unknown noise: z ends with log σ."""

import jax.numpy as jnp
import numpy as np

import quietgrad as qg

from .densities import log_exponential, log_half_normal, normal, normals, student_t
from .model import Model, affine


def calendar_years() -> Model:
    """A trend over calendar years: intercept and slope correlate at -0.99999."""
    rng = np.random.default_rng(201)
    year = np.arange(1975.0, 2015.0)
    y = 12.0 + 0.03 * (year - 1995) + 0.25 * rng.normal(size=year.size)
    target = qg.Target(
        lambda z: normal(z[0], 0.0, 100.0) + normal(z[1], 0.0, 1.0) + log_half_normal(z[2], 1.0),
        lambda z, data: normal(data[1], z[0] + z[1] * data[0], jnp.exp(z[2])),
        (year, y),
        dim=3,
    )
    centre = np.array([[1.0, -1994.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    view = affine(np.zeros(3), centre @ np.diag([1.0, 0.01, 0.1]))
    return Model(
        "trend over calendar years, predictor far from zero",
        target,
        view=view,
        start=np.array([12.0, 3.0, -14.0]),
    )


def many_predictors() -> Model:
    """26 predictors in four groups; within a group they correlate at 0.98."""
    rng = np.random.default_rng(202)
    rows, size = 500, 26
    groups = rng.normal(size=(rows, 4))[:, np.arange(size) % 4]
    x = np.sqrt(0.98) * groups + np.sqrt(0.02) * rng.normal(size=(rows, size))
    y = 3.0 + x @ rng.normal(size=size) + 0.4 * rng.normal(size=rows)
    target = qg.Target(
        lambda z: normals(z[:-1], 0.0, 5.0) + log_exponential(z[-1], 1.0),
        lambda z, data: normal(data[1], z[0] + data[0] @ z[1:-1], jnp.exp(z[-1])),
        (x, y),
        dim=size + 2,
    )
    return Model("26 correlated predictors", target)


def robust() -> Model:
    """Student-t noise with unknown degrees of freedom, and outliers in the data."""
    rng = np.random.default_rng(203)
    x = rng.normal(size=100)
    y = 1.0 + 2.0 * x + 0.5 * rng.standard_t(2.5, size=100)

    def log_prior(z):
        prior = normals(z[:2], 0.0, 10.0) + log_half_normal(z[2], 2.0)
        return prior + log_exponential(z[3], 0.1)

    target = qg.Target(
        log_prior,
        lambda z, data: student_t(data[1], jnp.exp(z[3]), z[0] + z[1] * data[0], jnp.exp(z[2])),
        (x, y),
        dim=4,
    )
    return Model("Student-t noise, degrees of freedom unknown", target)


def diabetes() -> Model:
    """The diabetes data of scikit-learn: ten predictors in tiny units, one answer in large ones."""
    from sklearn.datasets import load_diabetes

    x, y = load_diabetes(return_X_y=True)
    target = qg.Target(
        lambda z: normals(z[:-1], 0.0, 1000.0) + log_half_normal(z[-1], 100.0),
        lambda z, data: normal(data[1], z[0] + data[0] @ z[1:-1], jnp.exp(z[-1])),
        (x, y),
        dim=12,
    )
    scale = np.array([3.0, *[50.0] * 4, *[300.0] * 4, 50.0, 50.0, 0.05])
    view = affine(np.array([150.0, *[0.0] * 10, 4.0]), np.diag(scale))
    return Model("diabetes data, unscaled answer", target, view=view)


MODELS = {
    "calendar-years": calendar_years,
    "many-predictors": many_predictors,
    "robust-regression": robust,
    "diabetes": diabetes,
}
