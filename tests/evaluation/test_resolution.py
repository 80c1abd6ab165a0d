"""Where a log density is rounding noise, and that a fit does not climb it."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.evaluation.points import Points, resolved
from quietgrad.families import MeanField


def cancelling(z):
    """A normal density, with numbers of size e^(3 z_1) that are added and taken away again."""
    large = jnp.exp(3 * z[0])
    return -0.5 * jnp.sum(z**2) + (large * z[1] + large) - large * (z[1] + 1)


@pytest.mark.parametrize(("first", "known"), [(0.0, True), (2.0, True), (9.0, False), (15.0, False)])
def test_noise_is_told_from_slope_and_curvature(first, known):
    points = Points(qg.Target.from_logdensity(cancelling, dim=2), np.float32)
    mean, std = np.array([first, 1.0]), np.array([0.1, 1.0])
    assert resolved(points, mean, std, np.random.default_rng(0)) is known


@pytest.mark.parametrize("std", [1.0, 1e-2])
def test_a_narrow_posterior_far_from_zero_is_resolved(std):
    """A thousand, and a hundred thousand of its sds: single precision has numbers 6e-5 apart there."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(((z - 1e3) / std) ** 2), dim=2)
    points = Points(target, np.float32)
    assert resolved(points, np.full(2, 1e3), np.full(2, std), np.random.default_rng(0))


def test_a_fit_does_not_climb_noise():
    """Partial pooling with a Pareto prior: log Beta(p; phi kappa, (1 - phi) kappa) is noise for large
    kappa, of thousands of nats from kappa = e^18 on in single precision."""
    hits = jnp.array([18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7.0], jnp.float32)

    def log_density(z):
        from jax.scipy.special import gammaln

        log_kappa, phi = jnp.logaddexp(z[0], 0.0), 1 / (1 + jnp.exp(-z[1]))
        p, kappa = 1 / (1 + jnp.exp(-z[2:])), jnp.exp(log_kappa)
        a, b = phi * kappa, (1 - phi) * kappa
        beta = gammaln(kappa) - gammaln(a) - gammaln(b)
        pooled = beta + a * jnp.log(p) + b * jnp.log1p(-p)
        counts = hits * jnp.log(p) + (45 - hits) * jnp.log1p(-p)
        prior = -1.5 * log_kappa - jnp.logaddexp(-z[0], 0.0) + jnp.log(phi) + jnp.log1p(-phi)
        return prior + jnp.sum(pooled + counts)

    target = qg.Target.from_logdensity(log_density, dim=14)
    start = MeanField(jnp.zeros(14, jnp.float32), jnp.full(14, -1.0, jnp.float32))
    result = qg.fit(target, start, key=jr.key(0))
    assert np.asarray(result.q.mean())[0] < 15
    assert result.elbo < 0
