"""Sparse regression with the horseshoe prior, non-centred."""

import jax.numpy as jnp
import numpy as np

import quietgrad as qg

from .densities import log_half_cauchy, log_half_normal, normal, normals
from .model import Model


def horseshoe() -> Model:
    """z = 10 unit coefficients, 10 logs of local scales, log of the global one, log sd of the noise."""
    rng = np.random.default_rng(1101)
    size = 10
    x = rng.normal(size=(80, size))
    true = np.zeros(size)
    true[:3] = [2.0, -1.5, 1.0]
    y = x @ true + rng.normal(size=80)

    def log_prior(z):
        prior = normals(z[:size], 0.0, 1.0) + jnp.sum(log_half_cauchy(z[size : 2 * size], 1.0))
        return prior + log_half_cauchy(z[2 * size], 0.3) + log_half_normal(z[2 * size + 1], 2.0)

    def log_likelihood(z, data):
        coefficients = z[:size] * jnp.exp(z[size : 2 * size] + z[2 * size])
        return normal(data[1], data[0] @ coefficients, jnp.exp(z[2 * size + 1]))

    target = qg.Target(log_prior, log_likelihood, (x, y), dim=2 * size + 2)
    return Model("horseshoe regression", target, accept=0.98)


MODELS = {"horseshoe": horseshoe}
