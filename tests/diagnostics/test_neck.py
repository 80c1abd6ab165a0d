"""Scales that follow one coordinate, seen in many together, and what the ladder makes of it."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.stats import norm

import quietgrad as qg
from quietgrad.diagnostics.metric import Metric
from quietgrad.diagnostics.settings import DEFAULT
from quietgrad.diagnostics.shapes import neck, shapes_of

ERROR = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
EFFECT = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])


def test_a_shared_scale_shows_in_all_though_in_none():
    rng = np.random.default_rng(0)
    log_tau = rng.standard_normal(1000)
    theta = np.sqrt(1 + np.exp(1.2 * log_tau))[:, None] * rng.standard_normal((1000, 8))
    states = np.column_stack([log_tau, theta])
    metric = Metric(np.zeros(9), np.ones(9))
    assert shapes_of(states, metric).funnel is None
    assert neck(states) > DEFAULT.funnel


def test_independent_and_correlated_coordinates_have_none():
    rng = np.random.default_rng(1)
    for dim in (1, 10, 200):
        z = rng.standard_normal((1000, dim)) @ rng.standard_normal((dim, dim))
        # Of 200^2 correlations one in a thousand is called clear, and means of few of them are small.
        assert neck(z) < 0.6 * DEFAULT.funnel


def test_eight_schools_centred_get_a_hierarchy_where_chains_would_do():
    """Chains from the bent Gaussian agree with each other, and miss a quarter of the sd of log tau."""

    def log_density(z):
        mu, tau, theta = z[0], jnp.exp(z[1]), z[2:]
        hyper = norm.logpdf(mu, 0.0, 5.0) - jnp.log1p((tau / 5.0) ** 2) + z[1]
        effects = jnp.sum(norm.logpdf(theta, mu, tau))
        return hyper + effects + jnp.sum(norm.logpdf(jnp.asarray(EFFECT), theta, jnp.asarray(ERROR)))

    target = qg.Target.from_logdensity(log_density, dim=10)
    result = qg.fit(target, "auto", key=jr.key(2))
    assert type(result.q).__name__ == "Hierarchical"
    assert str(result.diagnose().verdict) == "trust"
