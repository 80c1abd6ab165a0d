"""What every registered base distribution promises: a density, its score, its quantiles and moments."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import assert_mean, assert_same, rule
from subjects import key_of

from quietgrad.families.bases import REGISTRY

DRAWS = 20_000


@pytest.fixture(params=REGISTRY, scope="module")
def base(request):
    return REGISTRY[request.param]()


@functools.cache
def draws_of(base):
    return np.asarray(base.sample((DRAWS,), jnp.float64, key=key_of("base draws")))


def moments_by_quadrature(base, function):
    e, w = rule(base, 400)
    return w @ function(e)


def test_log_prob_integrates_to_one(base):
    assert moments_by_quadrature(base, np.ones_like) == pytest.approx(1, abs=1e-12)


def test_score_is_the_derivative_of_log_prob(base):
    e = jnp.linspace(-9, 9, 31)
    assert_same(base.score(e), jax.vmap(jax.grad(base.log_prob))(e), operations=8)


def test_the_hosts_density_and_quantiles_are_those_of_jax(base):
    e, u = np.linspace(-9, 9, 31), np.linspace(0.01, 0.99, 31)
    assert_same(base.host_log_prob(e), base.log_prob(jnp.asarray(e)), operations=8)
    assert_same(base.host_quantile(u), base.quantile(jnp.asarray(u)), operations=100)


def test_density_is_symmetric(base):
    e = jnp.linspace(0, 9, 31)
    np.testing.assert_array_equal(base.log_prob(e), base.log_prob(-e))
    np.testing.assert_array_equal(base.score(e), -base.score(-e))


def test_quantile_inverts_the_distribution_function(base):
    """u = 1/2 + the integral of the density from zero (the median, by symmetry) to the quantile."""
    u = np.array([1e-4, 0.01, 0.2, 0.5, 0.6, 0.95, 0.9999])
    e = np.asarray(base.quantile(jnp.asarray(u)))
    x, w = np.polynomial.legendre.leggauss(200)
    inside = np.multiply.outer(e, 0.5 * (x + 1))
    density = np.exp(np.asarray(base.log_prob(jnp.asarray(inside))))
    # 200 Gauss nodes on at most ten standard deviations leave rounding only.
    np.testing.assert_allclose(0.5 + 0.5 * e * (density @ w), u, rtol=0, atol=1e-12)


def test_quantile_works_under_jit_and_vmap(base):
    u = jnp.linspace(0.1, 0.9, 6).reshape(2, 3)
    compiled = jax.jit(jax.vmap(base.quantile))(u)
    assert_same(compiled, base.quantile(u), operations=8)


def test_variance_and_entropy_are_integrals(base):
    log_prob = moments_by_quadrature(base, lambda e: np.asarray(base.log_prob(jnp.asarray(e))))
    # Nodes without weight 1e-18 are left out: at a tail e^-5 that cuts the second moment at 1e-9.
    assert moments_by_quadrature(base, np.square) == pytest.approx(base.variance, rel=1e-7)
    assert -log_prob == pytest.approx(base.entropy, rel=1e-9)


def test_moments_exist_below_the_stated_order(base):
    assert base.moments > 2
    assert np.isfinite(base.variance)


def test_sample_has_the_stated_moments(base):
    e = draws_of(base)
    assert_mean(e, 0.0)
    assert_mean(e**2, base.variance)
    # A bounded function, whose standard error is honest however heavy the tails are.
    assert_mean(np.tanh(e) ** 2, moments_by_quadrature(base, lambda e: np.tanh(e) ** 2))
    assert_mean(-np.asarray(base.log_prob(jnp.asarray(e))), base.entropy)


def test_sample_follows_the_quantiles(base):
    levels = np.array([0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99])
    below = draws_of(base)[:, None] < np.asarray(base.quantile(jnp.asarray(levels)))
    assert_mean(below.astype(float), levels)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_precision_is_kept(base, dtype):
    def everything(key, u):
        e = base.sample((3, 2), dtype, key=key)
        return e, base.log_prob(e), base.score(e), base.quantile(u)

    made = jax.eval_shape(everything, jax.random.key(0), jax.ShapeDtypeStruct((3, 2), dtype))
    assert {(x.shape, x.dtype) for x in made} == {((3, 2), jnp.dtype(dtype))}
