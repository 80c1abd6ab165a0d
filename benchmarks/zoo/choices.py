"""Binary and ordered answers: logistic regression, separated classes, ordered categories, items."""

import jax.numpy as jnp
import numpy as np
from jax.nn import log_sigmoid
from scipy.special import expit

import quietgrad as qg

from .densities import bernoulli, log_half_normal, normals
from .model import Model, density


def logistic() -> Model:
    """Eight predictors, 200 rows."""
    rng = np.random.default_rng(401)
    x = np.column_stack([np.ones(200), rng.normal(size=(200, 7))])
    y = (rng.uniform(size=200) < expit(x @ rng.normal(size=8))).astype(float)
    target = qg.Target(
        lambda z: normals(z, 0.0, 5.0), lambda z, d: bernoulli(d[1], d[0] @ z), (x, y), dim=8
    )
    return Model("logistic regression", target)


def separable() -> Model:
    """Classes that a line separates: only a weak prior keeps the coefficients finite."""
    rng = np.random.default_rng(402)
    x = np.column_stack([np.ones(30), rng.normal(size=(30, 2))])
    y = (x @ np.array([0.3, 1.5, -1.0]) > 0).astype(float)
    target = qg.Target(
        lambda z: normals(z, 0.0, 10.0), lambda z, d: bernoulli(d[1], d[0] @ z), (x, y), dim=3
    )
    return Model("separable logistic regression, prior sd 10", target)


def ordinal() -> Model:
    """Five ordered categories: z = two coefficients, the first cut, logs of the gaps."""
    rng = np.random.default_rng(403)
    x = rng.normal(size=(200, 2))
    latent = x @ np.array([1.0, -0.6]) + rng.logistic(size=200)
    y = np.digitize(latent, [-2.0, -0.5, 0.4, 2.2])

    def cuts(z):
        return z[2] + jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.exp(z[3:6]))])

    def log_prior(z):
        return normals(z[:2], 0.0, 3.0) + normals(cuts(z), 0.0, 5.0) + jnp.sum(z[3:6])

    def log_likelihood(z, data):
        x, y = data
        edge, shift = cuts(z), x @ z[:2]
        upper = edge[jnp.minimum(y, 3)] - shift
        lower = edge[jnp.maximum(y, 1) - 1] - shift
        # σ(u) - σ(l) = σ(u) σ(-l) (1 - exp(l - u))
        gap = jnp.where((y > 0) & (y < 4), upper - lower, 1.0)
        middle = log_sigmoid(upper) + log_sigmoid(-lower) + jnp.log(-jnp.expm1(-gap))
        return jnp.where(y == 0, log_sigmoid(upper), jnp.where(y == 4, log_sigmoid(-lower), middle))

    return Model("ordinal regression", qg.Target(log_prior, log_likelihood, (x, y), dim=6))


def item_response() -> Model:
    """Two-parameter logistic items: 40 abilities, 15 difficulties, 15 log discriminations."""
    rng = np.random.default_rng(404)
    people, items = 40, 15
    ability, difficulty = rng.normal(size=people), rng.normal(size=items)
    slope = np.exp(0.3 * rng.normal(size=items))
    logit = slope * (ability[:, None] - difficulty)
    y = (rng.uniform(size=logit.shape) < expit(logit)).astype(float)

    def log_density(z):
        ability, difficulty, log_slope = jnp.split(z, [people, people + items])
        logit = jnp.exp(log_slope)[None] * (ability[:, None] - difficulty[None])
        prior = normals(ability, 0.0, 1.0) + normals(difficulty, 0.0, 2.0)
        return prior + normals(log_slope, 0.0, 0.5) + jnp.sum(bernoulli(y, logit))

    return Model("item response, two-parameter logistic", density(log_density, people + 2 * items))


def multilevel_logistic() -> Model:
    """25 groups with random intercepts, non-centred: z = 2 coefficients, log sd, 25 effects."""
    rng = np.random.default_rng(405)
    group = np.repeat(np.arange(25), 12)
    x = rng.normal(size=group.size)
    logit = -0.5 + 0.8 * x + rng.normal(size=25)[group]
    y = (rng.uniform(size=group.size) < expit(logit)).astype(float)
    target = qg.Target(
        lambda z: normals(z[:2], 0.0, 3.0) + log_half_normal(z[2], 1.0) + normals(z[3:], 0.0, 1.0),
        lambda z, d: bernoulli(d[1], z[0] + z[1] * d[0] + jnp.exp(z[2]) * z[3:][d[2]]),
        (x, y, group),
        dim=28,
    )
    return Model("multilevel logistic regression", target)


MODELS = {
    "logistic": logistic,
    "separable": separable,
    "ordinal": ordinal,
    "item-response": item_response,
    "multilevel-logistic": multilevel_logistic,
}
