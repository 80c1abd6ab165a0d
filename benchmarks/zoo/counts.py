"""Generalised linear models of counts: Poisson, negative binomial, zero-inflated, beta-binomial."""

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import betaln
from scipy.special import expit

import quietgrad as qg

from .densities import bernoulli, log_exponential, negative_binomial, normals, poisson
from .model import Model


def poisson_regression() -> Model:
    """Counts on four predictors, one of them skewed."""
    rng = np.random.default_rng(301)
    x = np.column_stack([np.ones(150), rng.normal(size=(150, 2)), rng.exponential(size=150)])
    y = rng.poisson(np.exp(x @ np.array([0.5, 0.4, -0.7, 0.3]))).astype(float)
    target = qg.Target(
        lambda z: normals(z, 0.0, 5.0),
        lambda z, data: poisson(data[1], data[0] @ z),
        (x, y),
        dim=4,
    )
    return Model("Poisson regression", target)


def negative_binomial_regression() -> Model:
    """Overdispersed counts with an exposure."""
    rng = np.random.default_rng(302)
    x = np.column_stack([np.ones(120), rng.normal(size=(120, 2))])
    exposure = np.log(rng.uniform(0.5, 20.0, size=120))
    mean = np.exp(exposure + x @ np.array([0.2, 0.8, -0.4]))
    y = rng.poisson(mean * rng.gamma(1.5, 1 / 1.5, size=120)).astype(float)
    target = qg.Target(
        lambda z: normals(z[:3], 0.0, 5.0) + log_exponential(z[3], 0.2),
        lambda z, data: negative_binomial(data[1], data[2] + data[0] @ z[:3], z[3]),
        (x, y, exposure),
        dim=4,
    )
    return Model("negative binomial regression", target)


def zero_inflated() -> Model:
    """Zeros of two kinds: z = two coefficients of the rate, two of the log odds of a sure zero."""
    rng = np.random.default_rng(303)
    x = np.column_stack([np.ones(250), rng.normal(size=250)])
    y = rng.poisson(np.exp(x @ np.array([0.7, 0.5]))).astype(float)
    y[rng.uniform(size=250) < expit(x @ np.array([-0.5, 0.8]))] = 0.0

    def log_likelihood(z, data):
        x, y = data
        log_rate, logit = x @ z[:2], x @ z[2:]
        counted = poisson(y, log_rate) + bernoulli(jnp.zeros_like(y), logit)
        return jnp.where(y > 0, counted, jnp.logaddexp(counted, bernoulli(1.0, logit)))

    target = qg.Target(lambda z: normals(z, 0.0, 3.0), log_likelihood, (x, y), dim=4)
    return Model("zero-inflated Poisson regression", target)


def beta_binomial() -> Model:
    """Successes in batches of trials that differ more than a binomial would."""
    rng = np.random.default_rng(304)
    x = np.column_stack([np.ones(60), rng.normal(size=60)])
    trials = rng.integers(5, 40, size=60).astype(float)
    mean = expit(x @ np.array([-0.8, 0.6]))
    y = rng.binomial(trials.astype(int), rng.beta(6 * mean, 6 * (1 - mean))).astype(float)

    def log_likelihood(z, data):
        x, y, trials = data
        logit, size = x @ z[:2], jnp.exp(z[2])
        a, b = size / (1 + jnp.exp(-logit)), size / (1 + jnp.exp(logit))
        return betaln(a + y, b + trials - y) - betaln(a, b)

    target = qg.Target(
        lambda z: normals(z[:2], 0.0, 3.0) + log_exponential(z[2], 0.1),
        log_likelihood,
        (x, y, trials),
        dim=3,
    )
    return Model("beta-binomial regression", target)


MODELS = {
    "poisson-regression": poisson_regression,
    "negative-binomial": negative_binomial_regression,
    "zero-inflated": zero_inflated,
    "beta-binomial": beta_binomial,
}
