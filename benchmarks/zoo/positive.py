"""Positive answers: survival times with censoring, gamma regression, a covariance matrix."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

import quietgrad as qg

from .densities import log_exponential, log_half_normal, normals
from .model import Model


def weibull() -> Model:
    """Weibull times, a third of them censored: z = three coefficients of the log scale, log shape."""
    rng = np.random.default_rng(1001)
    x = np.column_stack([np.ones(100), rng.normal(size=100), rng.integers(0, 2, size=100)])
    time = np.exp(x @ np.array([1.0, 0.4, -0.6])) * rng.weibull(1.5, size=100)
    limit = rng.exponential(5.0, size=100)
    seen = (time < limit).astype(float)

    def log_likelihood(z, data):
        x, time, seen = data
        shape, log_ratio = jnp.exp(z[3]), jnp.log(time) - x @ z[:3]
        # log hazard where the end was seen, minus the integrated hazard everywhere
        hazard = z[3] + shape * log_ratio - jnp.log(time)
        return seen * hazard - jnp.exp(shape * log_ratio)

    target = qg.Target(
        lambda z: normals(z[:3], 0.0, 3.0) + log_exponential(z[3], 1.0),
        log_likelihood,
        (x, np.minimum(time, limit), seen),
        dim=4,
    )
    return Model("Weibull survival with censoring", target)


def gamma_regression() -> Model:
    """Gamma answers with a log link: z = three coefficients, log shape."""
    rng = np.random.default_rng(1002)
    x = np.column_stack([np.ones(90), rng.normal(size=(90, 2))])
    y = np.exp(x @ np.array([2.0, 0.5, -0.3])) * rng.gamma(2.0, 0.5, size=90)

    def log_likelihood(z, data):
        x, y = data
        shape, log_mean = jnp.exp(z[3]), x @ z[:3]
        scaled = jnp.log(y) + z[3] - log_mean
        return shape * scaled - jnp.exp(scaled) - gammaln(shape) - jnp.log(y)

    target = qg.Target(
        lambda z: normals(z[:3], 0.0, 5.0) + log_exponential(z[3], 0.5),
        log_likelihood,
        (x, y),
        dim=4,
    )
    return Model("gamma regression", target)


def covariance() -> Model:
    """Means, log sds and correlations of four variables, with an LKJ(2) prior.

    z[8:] are partial correlations on the scale of atanh (canonical vines); the matrix' Cholesky factor
    has rows made of them, and its log Jacobian is known (Lewandowski, Kurowicka & Joe 2009).
    """
    rng = np.random.default_rng(1003)
    size = 4
    true = np.linalg.cholesky(0.7 * np.ones((size, size)) + 0.3 * np.eye(size))
    y = rng.normal(size=(60, size)) @ true.T * np.array([0.5, 1.0, 2.0, 8.0]) + 3.0
    rows, columns = np.tril_indices(size, -1)

    def factor(z):
        partial = jnp.zeros((size, size)).at[rows, columns].set(jnp.tanh(z[8:]))
        # What is left of each row's unit length after its first columns.
        left = jnp.cumprod(jnp.sqrt(1 - partial**2), axis=1)
        left = jnp.concatenate([jnp.ones((size, 1)), left[:, :-1]], axis=1)
        return left * (partial + jnp.eye(size))

    def log_prior(z):
        # LKJ(η): a partial correlation of column k is a symmetric beta with η + (size - 2 - k) / 2.
        power = jnp.asarray(2.0 + 0.5 * (size - 2 - columns))
        partial = -2 * jnp.sum(power * jnp.log(jnp.cosh(z[8:])))
        return normals(z[:4], 0.0, 10.0) + jnp.sum(log_half_normal(z[4:8], 5.0)) + partial

    def log_likelihood(z, y):
        chol = jnp.exp(z[4:8])[:, None] * factor(z)
        white = jnp.linalg.solve(chol, (y - z[None, :4]).T)
        return -0.5 * jnp.sum(white**2, axis=0) - jnp.sum(jnp.log(jnp.diag(chol)))

    return Model("covariance matrix, LKJ prior", qg.Target(log_prior, log_likelihood, y, dim=14))


MODELS = {"weibull": weibull, "gamma-regression": gamma_regression, "covariance": covariance}
