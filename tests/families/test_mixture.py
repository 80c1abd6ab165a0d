"""Mixtures: closed forms against autodiff, the host against the device, quantiles where modes part."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from oracles import assert_same
from subjects import cast, family

from quietgrad.families import Components, Mixture
from quietgrad.families.mixture_quantile import host_quantile, quantile
from quietgrad.solvers.mixture import log_density_of


def components(rng, count=3, dim=2):
    root = np.tril(0.3 * rng.normal(size=(count, dim, dim)), -1)
    root += np.exp(0.3 * rng.normal(size=(count, dim)))[:, :, None] * np.eye(dim)
    return Components(np.log(rng.dirichlet(np.ones(count))), 2 * rng.normal(size=(count, dim)), root)


def test_log_prob_is_that_of_scipys_components():
    found = components(np.random.default_rng(0))
    q, z = Mixture.of(found, np.dtype(float)), np.random.default_rng(1).normal(size=(5, 2))
    parts = [
        np.exp(w) * scipy.stats.multivariate_normal.pdf(z, m, c @ c.T)
        for w, m, c in zip(*found, strict=True)
    ]
    assert_same(q.log_prob(jnp.asarray(z)), np.log(np.sum(parts, axis=0)), operations=1e3)


def test_host_and_device_carry_draws_to_the_same_points():
    q = family("mixture", 2)
    e = np.random.default_rng(2).normal(size=(8, 2))
    z, log_q = q.host_transport_and_log_prob(e)
    found = jax.jit(jax.vmap(q.transport_and_log_prob))(jnp.asarray(e))
    assert_same(found, (z, log_q), operations=1e3)


def test_the_inverse_is_each_coordinates_distribution_given_those_before():
    """By Bayes' rule from the covariances, in both tails; far out the nearer one has the digits."""
    weights, loc = np.array([0.3, 0.7]), np.array([[-1.0, 0.5], [2.0, -0.5]])
    covariance = np.array([[[1.0, 0.6], [0.6, 2.0]], [[0.5, -0.3], [-0.3, 0.8]]])
    q = Mixture.of(Components(np.log(weights), loc, np.linalg.cholesky(covariance)), np.dtype(float))
    z = np.array([[0.0, 0.0], [-2.5, 3.0], [3.5, -4.0], [12.0, 14.0], [-11.0, -13.0]])
    normal = scipy.stats.norm

    def quantile_of(z, weights, mean, std):
        x = (z[:, None] - mean) / std
        below, above = (np.sum(weights * tail(x), axis=1) for tail in (normal.cdf, normal.sf))
        return np.where(below < above, normal.ppf(below), normal.isf(above))

    gap, std = z[:, :1] - loc[:, 0], np.sqrt(covariance[:, 0, 0])
    given = weights * normal.pdf(gap / std) / std
    given /= np.sum(given, axis=1, keepdims=True)
    tie = covariance[:, 1, 0] / covariance[:, 0, 0]
    left = np.sqrt(covariance[:, 1, 1] - tie * covariance[:, 1, 0])
    expected = [
        quantile_of(z[:, 0], weights, loc[:, 0], std),
        quantile_of(z[:, 1], given, loc[:, 1] + tie * gap, left),
    ]
    found = jax.jit(jax.vmap(q.inverse))(jnp.asarray(z))
    np.testing.assert_allclose(found, np.stack(expected, axis=1), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("apart", [0.0, 1.0, 30.0])
def test_quantiles_solve_their_equation_however_far_modes_are_apart(apart):
    """By the share of draws below them: also in the gap, where the density is next to nothing."""
    weights, mean, std = np.array([0.3, 0.7]), np.array([-apart, apart]), np.array([1.0, 0.5])
    e = np.array([-6.0, -2.0, -0.5245, -0.5, 0.0, 1.0, 6.0])
    many = [np.tile(part, (len(e), 1)) for part in (weights, mean, std)]
    t = host_quantile(e, *many)
    normal = scipy.stats.norm
    below = np.sum(weights * normal.cdf((t[:, None] - mean) / std), axis=1)
    above = np.sum(weights * normal.sf((t[:, None] - mean) / std), axis=1)
    tail, own = np.where(e < 0, below, above), normal.cdf(-np.abs(e))
    # A rounding of t changes the tail by its relative slope, at most 12 at 6 sds, times |t|.
    np.testing.assert_allclose(tail, own, rtol=100 * np.finfo(float).eps * (12 + 12 * apart))
    arrays = [jnp.asarray(part) for part in (weights, mean, std)]
    found = jax.jit(jax.vmap(lambda e: quantile(e, *arrays)))(jnp.asarray(e))
    np.testing.assert_allclose(found, t, rtol=0, atol=1e-9 * (1 + apart))


def test_quantiles_have_the_derivatives_of_finite_differences():
    weights, mean, std = (jnp.array(x) for x in ([0.4, 0.6], [-1.0, 1.5], [0.7, 1.2]))

    def value(parts):
        share = parts[0] / jnp.sum(parts[0])
        return quantile(jnp.array(0.3), share, parts[1], parts[2])

    parts = (weights, mean, std)
    slope = jax.jit(jax.grad(value))(parts)
    for place in range(3):
        for k in range(2):
            moved = [jax.tree.map(jnp.asarray, list(parts)) for _ in range(2)]
            for sign, part in zip((1, -1), moved, strict=True):
                part[place] = part[place].at[k].add(sign * 1e-5)
            numeric = (value(tuple(moved[0])) - value(tuple(moved[1]))) / 2e-5
            # Central differences are off by about the square of the step, and by rounding over it.
            np.testing.assert_allclose(slope[place][k], numeric, atol=1e-8)


def test_the_hosts_score_and_hessian_are_those_of_log_prob():
    found = components(np.random.default_rng(3))
    q = Mixture.of(found, np.dtype(float))
    z = np.random.default_rng(4).normal(size=(3, 2))
    basis = np.array([[1.0, 0.0], [0.4, 0.8]])
    log_q, score, hessian = log_density_of(found, z, basis)
    value, slope = jax.jit(jax.vmap(jax.value_and_grad(q.log_prob)))(jnp.asarray(z))
    curvature = jax.jit(jax.vmap(jax.hessian(q.log_prob)))(jnp.asarray(z))
    assert_same((log_q, score), (value, slope), operations=1e3)
    assert_same(hessian, basis.T @ np.asarray(curvature) @ basis, operations=1e4)


def test_single_precision_carries_draws_as_double_does():
    q, e = family("mixture", 2), np.random.default_rng(5).normal(size=(64, 2))
    low = jax.jit(jax.vmap(cast(q, jnp.float32).transport))(jnp.asarray(e, jnp.float32))
    # Rounding of e and of the parameters, through derivatives of about ten at most.
    np.testing.assert_allclose(low, q.host_transport(e), atol=1e3 * np.finfo(np.float32).eps)
