"""Low rank at small scales in single precision, where the plain Woodbury formula is off; its factors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal
from subjects import cast

from quietgrad.families import LowRank

DIM, RANK = 653, 5
EPS = float(np.finfo(np.float32).eps)


@pytest.fixture(scope="module", params=[1e-3, 1e-4])
def std(request):
    return request.param


@pytest.fixture(scope="module")
def single(std):
    """Parameters that are exact in single precision."""
    noise = np.random.default_rng(0)
    loc, factor = noise.normal(size=DIM), 2 * noise.normal(size=(RANK, DIM))
    return cast(LowRank(jnp.asarray(loc), jnp.full(DIM, np.log(std)), jnp.asarray(factor)), jnp.float32)


@pytest.fixture(scope="module")
def e():
    return jnp.asarray(np.random.default_rng(1).normal(size=(20, DIM + RANK)), jnp.float32)


def rounding_of_sums(std):
    """log q sums |e|^2, about DIM, and log scales, about DIM |log std|, both rounded as they grow."""
    return 8 * EPS * DIM * (1 + abs(np.log(std)))


def test_log_prob_from_the_draw(single, std, e):
    exact = cast(single, jnp.float64)
    z, log_prob = jax.jit(jax.vmap(single.transport_and_log_prob))(e)
    _, truth = jax.jit(jax.vmap(exact.transport_and_log_prob))(e.astype(jnp.float64))
    assert log_prob.dtype == jnp.float32
    np.testing.assert_allclose(log_prob, truth, rtol=0, atol=rounding_of_sums(std))


def test_score_from_the_draw(single, std, e):
    exact = cast(single, jnp.float64)
    _, _, score = jax.jit(jax.vmap(single.transport_and_score))(e)
    _, _, truth = jax.jit(jax.vmap(exact.transport_and_score))(e.astype(jnp.float64))
    # (e_d - A M^-1 u) / sigma: e_d is of size four, and sums over DIM and RANK coordinates round it.
    atol = 4 * np.sqrt(DIM * RANK) * EPS / std
    np.testing.assert_allclose(score, truth, rtol=0, atol=atol)


@pytest.mark.turns(2)
def test_log_prob_from_the_point(single, std, e):
    """At the rounded point itself, so that only the evaluation rounds.

    z - mu is rounded by up to half an ulp, evenly spread, so with a standard deviation of an ulp over
    sqrt(12). Sigma magnifies that, and the quadratic form moves by twice the residual times it.
    """
    within_rounding(single, std, e)


def test_log_prob_with_scales_of_many_sizes(e):
    """Here one solve is not enough: without its refinement the error is some eighty times the bound."""
    noise = np.random.default_rng(0)
    loc, factor = noise.normal(size=DIM), 2 * noise.normal(size=(RANK, DIM))
    log_std = np.log(1e-3) + 3 * noise.normal(size=DIM)
    q = cast(LowRank(jnp.asarray(loc), jnp.asarray(log_std), jnp.asarray(factor)), jnp.float32)
    within_rounding(q, np.exp(np.asarray(q.log_std, float)), e)


def within_rounding(single, std, e):
    exact = cast(single, jnp.float64)
    z = jax.vmap(single.transport)(e)
    wide = z.astype(jnp.float64)
    truth = exact.log_prob(wide)
    residual = std * np.asarray(jax.vmap(jax.grad(exact.log_prob))(wide))
    moved = EPS / np.sqrt(12) * np.abs(np.asarray(wide) - np.asarray(exact.loc)) / std
    spread = np.sqrt(np.sum((2 * residual * moved) ** 2, axis=1))
    error = np.abs(np.asarray(single.log_prob(z), float) - np.asarray(truth))
    assert np.all(error < np.mean(rounding_of_sums(std)) + 5 * spread)


def test_woodbury_would_fail_here(single, e):
    """The form that the family avoids: the bound above is one that it does not keep."""
    z = np.asarray(jax.vmap(single.transport)(e))
    scale, factor = np.exp(np.asarray(single.log_std)), np.asarray(single.factor).T
    gap, scaled = (z - np.asarray(single.loc)) / scale, factor / scale[:, None]
    inner = np.linalg.solve(np.eye(RANK, dtype=np.float32) + scaled.T @ scaled, scaled.T @ gap.T)
    plain = np.sum(gap**2, axis=1) - np.sum((gap @ scaled) * inner.T, axis=1)
    exact = cast(single, jnp.float64)
    normaliser = exact.entropy() - 0.5 * DIM
    truth = -2 * (exact.log_prob(jnp.asarray(z, jnp.float64)) + normaliser)
    assert plain.dtype == np.float32
    assert np.max(np.abs(plain - np.asarray(truth))) > 1


def test_factors_are_not_shifted_where_draws_have_their_moments():
    """Draws whose second moments are exactly those of the base, and gradients that are linear in z."""
    rng = np.random.default_rng(0)
    q = LowRank(*(jnp.asarray(rng.normal(size=shape)) for shape in ((3,), (3,), (2, 3))))
    hessian, slope = (jnp.asarray(rng.normal(size=shape)) for shape in ((3, 3), (3,)))
    hessian = hessian + hessian.T
    e = np.sqrt(5) * jnp.concatenate([jnp.eye(5), -jnp.eye(5)])
    z = jax.vmap(q.transport)(e)
    gradients = slope[None, :] + (z - q.loc[None, :]) @ hessian
    shift = q.factor_shift(lambda v: hessian @ v, e, gradients)["factor"]
    # Sums of ten products of numbers below a hundred.
    np.testing.assert_allclose(shift, 0.0, atol=1e-11)


def test_densities_and_entropy_are_those_of_the_dense_covariance():
    """From the draw, in JAX and on the host, for scales that are not one."""
    rng = np.random.default_rng(0)
    q = LowRank(*(jnp.asarray(rng.normal(size=shape)) for shape in ((4,), (4,), (2, 4))))
    factor, e = np.asarray(q.factor), rng.normal(size=(5, 6))
    covariance = np.diag(np.exp(2 * np.asarray(q.log_std))) + factor.T @ factor
    dense = multivariate_normal(q.loc, covariance)
    z, log_prob = jax.jit(jax.vmap(q.transport_and_log_prob))(jnp.asarray(e))
    np.testing.assert_allclose(log_prob, dense.logpdf(z), rtol=1e-11)
    np.testing.assert_allclose(q.host_transport(e), z, rtol=1e-11)
    np.testing.assert_allclose(q.host_log_prob(e), dense.logpdf(z), rtol=1e-11)
    np.testing.assert_allclose(q.entropy(), dense.entropy(), rtol=1e-11)


@pytest.mark.parametrize("rank", [1, 2, 4, 6])
def test_the_best_member_for_a_quadratic_has_its_scales_and_factors(rank):
    """A covariance with one factor beside a diagonal is within reach of each rank, as is its mean."""
    rng = np.random.default_rng(1)
    axis, std, mean = rng.normal(size=4), np.exp(rng.normal(size=4)), rng.normal(size=4)
    covariance = np.diag(std**2) + 4 * np.outer(axis, axis)
    start = LowRank(*(jnp.asarray(0.1 * rng.normal(size=shape)) for shape in ((4,), (4,), (rank, 4))))
    q = start.for_quadratic(mean, np.linalg.inv(covariance))
    np.testing.assert_allclose(q.loc, mean)
    ratio = np.linalg.solve(covariance, q.host_covariance())
    divergence = 0.5 * (np.trace(ratio) - 4 - np.linalg.slogdet(ratio)[1])
    # Iterations end where one gains less than a thousandth of a nat.
    assert divergence < 0.02
