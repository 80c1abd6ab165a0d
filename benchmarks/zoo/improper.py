"""Posteriors that do not exist: the density has no finite integral, and a fit has to say so."""

import jax.numpy as jnp
import numpy as np

import quietgrad as qg

from .densities import bernoulli, log_half_normal, normal, normals
from .model import Model, density


def two_intercepts() -> Model:
    """Two intercepts of which the data see the sum, both with flat priors."""
    rng = np.random.default_rng(1301)
    x = rng.normal(size=50)
    y = 1.0 + 2.0 * x + 0.5 * rng.normal(size=50)
    target = qg.Target(
        lambda z: normal(z[2], 0.0, 5.0) + log_half_normal(z[3], 1.0),
        lambda z, d: normal(d[1], z[0] + z[1] + z[2] * d[0], jnp.exp(z[3])),
        (x, y),
        dim=4,
    )
    why = "improper: the difference of two intercepts is not seen by data nor prior"
    return Model("two intercepts, flat priors", target, must_warn=why, proper=False)


def flat_scale() -> Model:
    """Eight group effects whose scale has a flat prior on its logarithm: mass 1/τ at τ = 0."""
    rng = np.random.default_rng(1302)
    y = rng.normal(size=8)

    def log_density(z):
        effects = z[2:]
        prior = normal(z[0], 0.0, 5.0) + normals(effects, 0.0, 1.0)
        return prior + normals(y, z[0] + jnp.exp(z[1]) * effects, 1.0)

    why = "improper: the density stays constant as the log scale goes to minus infinity"
    return Model("flat prior on a log scale", density(log_density, 10), must_warn=why, proper=False)


def separated() -> Model:
    """Separable classes and a flat prior: the likelihood rises for ever."""
    rng = np.random.default_rng(1303)
    x = np.column_stack([np.ones(30), rng.normal(size=(30, 2))])
    y = (x @ np.array([0.3, 1.5, -1.0]) > 0).astype(float)
    target = qg.Target(
        lambda z: jnp.zeros_like(z[0]), lambda z, d: bernoulli(d[1], d[0] @ z), (x, y), dim=3
    )
    why = "improper: separable classes with a flat prior"
    return Model("separable classes, flat prior", target, must_warn=why, proper=False)


MODELS = {
    "two-intercepts": two_intercepts,
    "flat-scale": flat_scale,
    "separated-flat": separated,
}
