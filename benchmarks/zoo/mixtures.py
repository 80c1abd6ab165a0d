"""Mixtures: of normals as a model of data, with ordered means or labels that switch; two bare modes."""

import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid
from jax.scipy.special import logsumexp

import quietgrad as qg

from .densities import log_half_normal, normal, normals
from .model import Model, Moments, View, density


def _sample():
    rng = np.random.default_rng(601)
    first = rng.uniform(size=150) < 0.35
    return np.where(first, -1.5, 1.5) + 0.8 * rng.normal(size=150)


def _log_likelihood(means, log_std, logit, y):
    """log of w N(m₁, s²) + (1 - w) N(m₂, s²) for each row."""
    first = log_sigmoid(logit) + normal(y, means[0], jnp.exp(log_std))
    return jnp.logaddexp(first, log_sigmoid(-logit) + normal(y, means[1], jnp.exp(log_std)))


def _common(means, log_std, logit):
    # A uniform weight has the density of the logistic distribution on the scale of log odds.
    weight = log_sigmoid(logit) + log_sigmoid(-logit)
    return normals(means, 0.0, 3.0) + log_half_normal(log_std, 2.0) + weight


def _ordered(z):
    """From (m₁, log(m₂ - m₁), ...) to (m₁, m₂, ...)."""
    return jnp.concatenate([z[:1], z[:1] + jnp.exp(z[1:2]), z[2:]])


def ordered() -> Model:
    """z = first mean, log of the gap to the second, log sd, log odds of the first."""
    target = qg.Target(
        lambda z: _common(_ordered(z)[:2], z[2], z[3]) + z[1],
        lambda z, y: _log_likelihood(_ordered(z)[:2], z[2], z[3], y),
        _sample(),
        dim=4,
    )
    return Model("two normals with ordered means", target, start=np.array([-1.5, 1.0, -0.2, -0.6]))


def switching() -> Model:
    """z = both means, log sd, log odds: exchanging the labels changes nothing."""
    target = qg.Target(
        lambda z: _common(z[:2], z[2], z[3]),
        lambda z, y: _log_likelihood(z[:2], z[2], z[3], y),
        _sample(),
        dim=4,
    )
    return Model(
        "two normals whose labels switch",
        target,
        view=View(_ordered, lambda u: u[1]),
        mirror=lambda z: jnp.array([1.0, 1.0, 1.0, -1.0]) * z[jnp.array([1, 0, 2, 3])],
        must_warn="two modes of equal weight, one for each order of the labels",
        start=np.array([-1.5, 1.0, -0.2, -0.6]),
    )


def bimodal() -> Model:
    """Two normals of sd 1, eight apart in each of two coordinates, weights 0.5."""
    centres = jnp.array([[-4.0, -4.0], [4.0, 4.0]])

    def log_density(z):
        return logsumexp(-0.5 * jnp.sum((z[None] - centres) ** 2, axis=1))

    exact = Moments(np.zeros(2), np.full(2, np.sqrt(17.0)), "mixture of two normals")
    why = "two modes of equal weight, far apart"
    return Model("two modes far apart", density(log_density, 2), exact=exact, must_warn=why)


def two_bumps() -> Model:
    """0.7 N(0, 1) + 0.3 N(3, 0.6²): modes that touch, unequal."""

    def log_density(z):
        first = jnp.log(0.7) + normal(z[0], 0.0, 1.0)
        return jnp.logaddexp(first, jnp.log(0.3) + normal(z[0], 3.0, 0.6))

    second = 0.7 * 1.0 + 0.3 * (9.0 + 0.36)
    exact = Moments(np.array([0.9]), np.array([np.sqrt(second - 0.81)]), "mixture of two normals")
    return Model("two touching modes", density(log_density, 1), exact=exact)


MODELS = {
    "mixture-ordered": ordered,
    "mixture-switching": switching,
    "bimodal": bimodal,
    "two-bumps": two_bumps,
}
