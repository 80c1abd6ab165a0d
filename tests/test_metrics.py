"""ELBO and lppd against closed forms and plain formulas, in one piece and in blocks."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import assert_mean, assert_same
from scipy.special import logsumexp
from subjects import family, target_2d

import quietgrad as qg
from quietgrad.evaluation import metrics

LOC = np.array([0.4, -0.3])
PRECISION = np.array([[1.5, 0.6], [0.6, 0.9]])


def gaussian(z):
    gap = z - LOC
    return -0.5 * gap @ PRECISION @ gap


def exact_elbo(q):
    """-1/2 [(mu - m)'P(mu - m) + tr(P Sigma)] + H(q) for the Gaussian target."""
    covariance = np.asarray(q.covariance_matmul(jnp.eye(2)))
    gap = np.asarray(q.mean()) - LOC
    return -0.5 * (gap @ PRECISION @ gap + np.trace(PRECISION @ covariance)) + float(q.entropy())


@pytest.fixture(scope="module")
def repetitions():
    """1000 ELBOs of 50 draws each, with their stated errors."""
    target, q = qg.Target.from_logdensity(gaussian, dim=2), family("full-rank", 2)
    keys = jr.split(jr.key(3), 1000)
    return q, jax.jit(jax.vmap(lambda k: qg.elbo_with_error(target, q, draws=50, key=k)))(keys)


def test_elbo_is_unbiased(repetitions):
    q, (values, _) = repetitions
    assert_mean(values, exact_elbo(q))


def test_elbo_error_is_honest(repetitions):
    """The squared standard error is an unbiased estimate of the squared deviation."""
    q, (values, errors) = repetitions
    assert_mean((values - exact_elbo(q)) ** 2 - errors**2, 0.0)


def test_elbo_is_the_value_of_elbo_with_error(key):
    target, q = target_2d("curved"), family("mean-field", 2)
    value, error = qg.elbo_with_error(target, q, key=key)
    assert qg.elbo(target, q, key=key) == value
    assert error > 0


def rows_target(rows):
    """A fresh target, so that nothing compiled for another block size is used again."""
    noise = np.random.default_rng(0)
    x, y = noise.normal(size=(rows, 2)), noise.integers(0, 2, size=rows).astype(float)

    def log_likelihood(z, data):
        x, y = data
        logit = x @ z
        # A maximum needs at least one row, so an empty block would show.
        return y * logit - jnp.logaddexp(logit, 0.0) + 0 * jnp.max(y)

    return qg.Target(gaussian, log_likelihood, (x, y), size=3 * rows)


@pytest.mark.parametrize("rows", [7, 8])
@pytest.mark.parametrize("block", [1, 4, 20])
def test_blocks_change_nothing(rows, block, key):
    """Blocks of rows, of draws, and both with a remainder."""
    q = family("mean-field", 2)
    whole = rows_target(rows)
    expected = qg.elbo(whole, q, draws=11, key=key), qg.lppd(whole, q, draws=11, key=key)
    cut, e = rows_target(rows), q.base.sample((11, q.base_dim), q.dtype, key=key)
    assert metrics._draws_at_once(cut, q, 11, block) == max(1, block // max(min(rows, block), 2))
    made = jnp.mean(metrics.elbo_terms(cut, q, e, block)), metrics._lppd(cut, q, 11, key, block)
    # Sums over at most 8 rows and 11 draws.
    assert_same(made, expected, operations=20)


def test_elbo_scales_the_likelihood_to_the_size(key):
    target, q = rows_target(7), family("mean-field", 2)
    z = q.sample(key, 500)
    log_lik = np.asarray(jax.vmap(target.log_likelihoods)(z))
    prior = np.asarray(jax.vmap(gaussian)(z))
    terms = prior + 3 * np.sum(log_lik, axis=1) - np.asarray(q.log_prob(z))
    np.testing.assert_allclose(qg.elbo(target, q, key=key), np.mean(terms), rtol=1e-12)


def test_lppd_is_the_log_of_the_mean_likelihood(key):
    target, q = rows_target(7), family("mean-field", 2)
    log_lik = np.asarray(jax.vmap(target.log_likelihoods)(q.sample(key, 1000)))
    expected = np.sum(logsumexp(log_lik, axis=0) - np.log(1000))
    np.testing.assert_allclose(qg.lppd(target, q, key=key), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_precision_is_kept(dtype, key):
    target, q = target_2d("curved", dtype), family("mean-field", 2, dtype=dtype)
    value, error = jax.eval_shape(lambda k: qg.elbo_with_error(target, q, key=k), key)
    assert value.dtype == error.dtype == dtype
    assert jax.eval_shape(lambda k: qg.lppd(target, q, key=k), key).dtype == dtype
