"""A normal hierarchy whose posterior is known by quadrature, and versions with other likelihoods."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm
from scipy.stats import norm as normal

from quietgrad import Target


class Exact(NamedTuple):
    """log Z, and means and sds of mu and log tau."""

    log_evidence: float
    mean: np.ndarray
    std: np.ndarray


def normal_groups(groups, *, tau=1.0, seed=0):
    """theta_j ~ N(mu, tau^2) around mu = 0.5 with two rows y ~ N(theta_j, 1) each."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(0.5, tau, groups)
    return theta[:, None] + rng.normal(size=(groups, 2))


def prior(z):
    """mu ~ N(0, 5^2), log tau ~ N(0, 1), theta_j ~ N(mu, tau^2)."""
    mu, log_tau, theta = z[0], z[1], z[2:]
    own = jnp.sum(norm.logpdf(theta, mu, jnp.exp(log_tau)))
    return norm.logpdf(mu, 0.0, 5.0) + norm.logpdf(log_tau, 0.0, 1.0) + own


def normal_target(y):
    """The centred hierarchy, with rows."""
    groups = len(y)
    data = {
        "y": y.reshape(-1).astype(np.dtype(jnp.zeros(()).dtype)),
        "group": np.repeat(np.arange(groups), 2),
    }

    def log_likelihood(z, rows):
        return norm.logpdf(rows["y"], z[2:][rows["group"]], 1.0)

    return Target(prior, log_likelihood, data, dim=groups + 2)


def poisson_target(y):
    """Counts y ~ Poisson(exp theta_j)."""
    counts = jnp.asarray(y, jnp.zeros(()).dtype)

    def log_density(z):
        rate = z[2:, None]
        return prior(z) + jnp.sum(counts * rate - jnp.exp(rate) - jax.lax.lgamma(counts + 1))

    return Target.from_logdensity(log_density, dim=len(y) + 2)


def exact(y):
    """By quadrature over log tau; everything else is normal."""
    n, means = len(y), y.mean(axis=1)
    constant = normal.logpdf(y[:, 0] - y[:, 1], 0, np.sqrt(2)).sum()
    log_tau = np.linspace(-8, 4, 100_001)
    variance = np.exp(2 * log_tau) + 0.5
    precision = 1 / 25 + n / variance
    center = (means.sum() / variance) / precision
    value = normal.logpdf(log_tau) - 0.5 * n * np.log(2 * np.pi * variance)
    value += -0.5 * (means**2).sum() / variance - 0.5 * np.log(25 * precision)
    value += 0.5 * center**2 * precision
    top, width = value.max(), log_tau[1] - log_tau[0]
    weight = np.exp(value - top)
    log_evidence = np.log(weight.sum() * width) + top + constant
    weight /= weight.sum()
    first, second = weight @ center, weight @ log_tau
    spread = weight @ (1 / precision + (center - first) ** 2), weight @ (log_tau - second) ** 2
    return Exact(float(log_evidence), np.array([first, second]), np.sqrt(np.array(spread)))
