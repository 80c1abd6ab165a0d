"""The rung of mixtures: shapes that moments do not show, heavy modes, and mass that is left out."""

import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import scipy.special
from jax.scipy.special import logsumexp

import quietgrad as qg
from quietgrad.diagnostics.draws import Draws, draw
from quietgrad.diagnostics.local_mass import Local
from quietgrad.diagnostics.psis import smooth
from quietgrad.evaluation.points import Points
from quietgrad.families import Components, FullRank, Mixture
from quietgrad.methods.mixture_starts import (
    at_modes,
    at_parts,
    pooled,
    triangular,
    weighted,
    widened,
)
from quietgrad.methods.rungs import CurvedRung, FlowRung, FullRankRung
from quietgrad.solvers import ModeSearch


def mixture(weights, means, covariances):
    """A normalised mixture of Gaussians: log Z = 0."""
    means = np.asarray(means, float)
    inverse = np.linalg.inv(np.linalg.cholesky(np.asarray(covariances, float)))
    constant = np.log(weights) + np.log(np.diagonal(inverse, axis1=1, axis2=2)).sum(axis=1)
    constant = constant - means.shape[1] / 2 * math.log(2 * math.pi)

    def log_density(z):
        x = jnp.einsum("kij,kj->ki", jnp.asarray(inverse), z[None] - means)
        return logsumexp(jnp.asarray(constant) - 0.5 * jnp.sum(x**2, axis=1))

    return qg.Target.from_logdensity(log_density, dim=means.shape[1])


def near_zero(result, floor):
    return abs(result.elbo) < 5 * result.elbo_error + floor


@pytest.mark.turns(2)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_cross_is_fitted_though_the_moments_of_a_gaussian_are_right(seed):
    """KL(q||p) of the best Gaussian is 0.4 nats. The floor is the acceptance's 0.02."""
    ridge = np.array([[2.0, 1.8], [1.8, 2.0]])
    target = mixture([0.5, 0.5], np.zeros((2, 2)), [ridge, ridge * [[1, -1], [-1, 1]]])
    result = qg.fit(target, "auto", key=jr.key(seed))
    assert isinstance(result.q, Mixture)
    assert near_zero(result, 0.02)


def test_modes_that_are_close_do_not_become_one():
    """A Gaussian around either would spread over both."""
    target = mixture([0.5, 0.5], [[-2.0, 0.0], [2.0, 0.0]], [np.eye(2)] * 2)
    result = qg.fit(target, "auto", key=jr.key(1))
    assert isinstance(result.q, Mixture)
    assert near_zero(result, 0.005)


def test_modes_that_mirror_each_other_are_all_found_and_weighted_by_their_mass():
    """At the mean of a part, whose covariance is the part's; a Gaussian alone has a weight of one."""
    means = np.array([[4.0, 3.0], [-4.0, -3.0], [4.0, -3.0]])
    roots = [np.diag([0.5, 1.0]), np.eye(2), np.array([[0.6, 0.0], [0.3, 0.5]])]
    covariances = np.stack([root @ root.T for root in roots])
    target = mixture([0.5, 0.3, 0.2], means, covariances)
    points, rng = Points(target, np.dtype(float)), np.random.default_rng(0)
    drawn = draw(FullRank(jnp.zeros(2), jnp.zeros(3)), points, rng, 256)
    parts = at_modes(ModeSearch(), points, drawn, rng, lambda: None, climbs=48, trials=40, most=6)
    assert len(parts) == 3
    for most in (1, 3):
        found = weighted(points, parts[:most], rng)
        assert found is not None
        order = [int(np.argmin(np.sum((means - loc) ** 2, axis=1))) for loc in found.loc]
        assert len({*order}) == most
        shares = np.array([0.5, 0.3, 0.2])[order]
        # The parts are five sds or more apart, where another has exp(-12) of the density.
        np.testing.assert_allclose(np.exp(found.log_weights), shares / np.sum(shares), rtol=1e-3)
        np.testing.assert_allclose(found.loc, means[order], atol=1e-2)
        spread = np.einsum("kij,klj->kil", found.root, found.root)
        np.testing.assert_allclose(spread, covariances[order], atol=1e-2)


def test_doubled_parts_fit_draws_better_than_what_they_were_drawn_from():
    """The maximum of the likelihood is above the truth; two parts of which each is wide and narrow."""
    rng, count = np.random.default_rng(0), 100
    loc = np.array([[0.0, -6.0], [0.0, -6.0], [0.0, 6.0], [0.0, 6.0]])
    std = np.array([[3.0, 1.0], [0.5, 1.0], [3.0, 1.0], [0.5, 1.0]])
    e = rng.normal(size=(4 * count, 2))
    z = np.repeat(loc, count, axis=0) + np.repeat(std, count, axis=0) * e

    def log_density(parts):
        gap = z[:, None] - parts.loc
        x = np.einsum("kij,nkj->nki", np.linalg.inv(parts.root), gap)
        log_det = np.linalg.slogdet(parts.root)[1]
        return scipy.special.logsumexp(parts.log_weights - log_det - 0.5 * np.sum(x**2, axis=2), axis=1)

    truth = Components(np.log(np.full(4, 0.25)), loc, np.stack([np.diag(each) for each in std]))
    half = Components(np.log([0.5, 0.5]), loc[::2], np.stack([np.eye(2)] * 2))
    values = log_density(truth)
    drawn = Draws(e, z, values, values, np.zeros_like(z), 1)
    found = at_parts(drawn, 4, rng, half)
    assert np.mean(log_density(found)) > np.mean(values)
    assert np.sum(np.exp(found.log_weights)) == pytest.approx(1)


@pytest.mark.slow
def test_modes_with_heavy_tails_are_divided():
    """Two modes, each of two Gaussians with one mean, sds 3 and 1/2, from a component for each.

    Draws are worth some 1,000: 250 for each component, and an error of its sd of 1 / sqrt(500).
    """
    wide, narrow = np.diag([9.0, 1, 1, 1, 1]), np.diag([0.25, 1, 1, 1, 1])
    far = np.eye(5)[1] * 15
    target = mixture([0.25] * 4, [-far, -far, far, far], [wide, narrow, wide, narrow])
    points, rng = Points(target, np.dtype(float)), np.random.default_rng(0)
    parts = Components(np.log([0.5, 0.5]), np.stack([-far, far]), np.stack([np.eye(5)] * 2))
    drawn = draw(Mixture.of(widened(parts, 2.0), np.dtype(float)), points, rng, 8192)
    assert smooth(drawn.log_weights).effective > 1000
    found = at_parts(drawn, 4, rng, parts)
    stds = np.sort(np.linalg.norm(found.root[:, 0], axis=1))
    np.testing.assert_allclose(stds, [0.5, 0.5, 3.0, 3.0], rtol=5 / math.sqrt(500))
    np.testing.assert_allclose(np.exp(found.log_weights), 0.25, atol=5 * math.sqrt(0.25 * 0.75 / 1000))


def test_draws_of_what_is_left_out_are_weighted_with_those_of_q():
    """q has one of two modes: a mixture fitted to pooled draws has both by their mass."""
    target = mixture([0.7, 0.3], [[0.0, 0.0], [9.0, 0.0]], [np.eye(2), 0.25 * np.eye(2)])
    points, rng = Points(target, np.dtype(float)), np.random.default_rng(0)
    q = FullRank(loc=jnp.zeros(2), packed=jnp.zeros(3))
    local = Local(np.array([9.0, 0.0]), 0.5 * np.eye(2), 0.0, 0.0)
    other = FullRank.of_host(local.center, local.root, np.dtype(float))
    drawn = pooled(draw(q, points, rng, 1024), q, [draw(other, points, rng, 256)], [local])
    weights = np.exp(drawn.log_weights)
    error = np.std(weights) / math.sqrt(weights.size)
    assert abs(np.mean(weights) - 1) < 5 * error
    found = at_parts(drawn, 2, rng)
    nearest = np.argmin(np.abs(found.loc[:, 0] - 9))
    assert np.exp(found.log_weights)[nearest] == pytest.approx(0.3, abs=5 * error)


def test_a_triangular_root_has_the_same_covariance():
    root = np.random.default_rng(0).normal(size=(4, 4))
    lower = triangular(root)
    np.testing.assert_allclose(lower @ lower.T, root @ root.T, rtol=1e-10, atol=1e-12)
    assert np.all(np.diagonal(lower) > 0)
    assert np.all(np.triu(lower, 1) == 0)


def test_no_flow_is_compiled_where_one_mode_of_many_is_known():
    """Sixteen modes at the corners of a box in four coordinates; without mixtures nothing mends that."""
    corners = np.array(np.meshgrid(*[[-6.0, 6.0]] * 4)).reshape(4, -1).T
    target = mixture(np.full(16, 1 / 16), corners, [np.eye(4)] * 16)
    method = qg.Auto(rungs=(FullRankRung(), CurvedRung(), FlowRung()))
    result = qg.fit(target, "auto", method=method, key=jr.key(0))
    assert isinstance(result.q, FullRank | qg.MeanField)
    assert not any("Flow" in str(d) for d in result.decisions)
    assert any("never looks" in reason for reason in result.diagnose().reasons)


def test_a_mode_without_mass_is_left_for_the_mass():
    """Starts near zero climb to a mode with exp(-17) of the mass, where Newton steps gain nothing."""
    dim, share = 5, math.exp(-17)
    means = np.stack([np.full(dim, -1.5), np.full(dim, 3.5)])
    result = qg.fit(mixture([share, 1 - share], means, [np.eye(dim)] * 2), "auto", key=jr.key(0))
    assert near_zero(result, 0.005)
    np.testing.assert_allclose(result.q.mean(), means[1], atol=0.05)
