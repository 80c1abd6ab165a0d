"""Gaussian processes: hyperparameters of a regression, and a latent one behind Poisson counts."""

import jax.numpy as jnp
import numpy as np

from .densities import log_half_normal, log_inverse_gamma, normal, normals, poisson
from .model import Model, density


def _kernel(x, log_length, log_std):
    distance = (x[:, None] - x[None]) / jnp.exp(log_length)
    return jnp.exp(2 * log_std - 0.5 * distance**2)


def hyperparameters() -> Model:
    """z = logs of the length, the amplitude and the noise; the function itself is integrated out."""
    rng = np.random.default_rng(701)
    x = np.sort(rng.uniform(0.0, 10.0, size=40))
    y = np.sin(x) + 0.3 * np.cos(3 * x) + 0.3 * rng.normal(size=40)

    def log_density(z):
        noise = (jnp.exp(2 * z[2]) + 1e-8) * jnp.eye(40)
        chol = jnp.linalg.cholesky(_kernel(x, z[0], z[1]) + noise)
        white = jnp.linalg.solve(chol, y)
        log_lik = -0.5 * white @ white - jnp.sum(jnp.log(jnp.diag(chol)))
        prior = log_inverse_gamma(z[0], 3.0, 3.0) + log_half_normal(z[1], 2.0)
        return log_lik + prior + log_half_normal(z[2], 1.0)

    return Model("Gaussian process regression, hyperparameters", density(log_density, 3))


def latent_counts() -> Model:
    """z = log length, log amplitude, mean, and the whitened function at 30 points."""
    rng = np.random.default_rng(702)
    x = np.linspace(0.0, 6.0, 30)
    y = rng.poisson(np.exp(0.8 + np.sin(1.5 * x))).astype(float)

    def log_density(z):
        chol = jnp.linalg.cholesky(_kernel(x, z[0], z[1]) + 1e-6 * jnp.eye(30))
        log_rate = z[2] + chol @ z[3:]
        prior = log_inverse_gamma(z[0], 5.0, 5.0) + log_half_normal(z[1], 1.0)
        prior += normal(z[2], 0.0, 2.0) + normals(z[3:], 0.0, 1.0)
        return prior + jnp.sum(poisson(y, log_rate))

    return Model("latent Gaussian process, Poisson counts", density(log_density, 33))


MODELS = {"gp-regression": hyperparameters, "gp-poisson": latent_counts}
