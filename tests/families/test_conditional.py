"""Families that draw globals first: nested locals against closed forms, and consistency of the whole."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hierarchy_models import normal_groups, normal_target, poisson_target, prior
from scipy.stats import norm, poisson
from structured_members import away, member

from quietgrad import Target
from quietgrad.families import Chain, FullRank, Hierarchical, Triangular
from quietgrad.families.conditional import (
    NestedLaplace,
    NestedSkewed,
    at_points,
    recentred,
    skewed_locals,
    skewness,
)
from quietgrad.families.conditional.at_points import MOST_AT_FIRST
from quietgrad.families.conditional.locals import local_root
from quietgrad.families.conditional.nested import Solution
from quietgrad.families.conditional.skew import log_slope, skewed, unskewed
from quietgrad.structure import Structure

GROUPS = 12


def structure(kind="arrowhead"):
    return Structure([0, 1], np.arange(2, GROUPS + 2)[:, None], kind)


def centred(target, kind="arrowhead"):
    first = NestedLaplace.begin(target, structure(kind), np.zeros((1, GROUPS)), np.zeros(2))
    return recentred(first, np.zeros(2), np.full(2, 1e-3), MOST_AT_FIRST)


def walk_target():
    """A random walk seen with noise: x_t ~ N(x_{t-1}, tau^2), y_t ~ N(x_t, 1), x_1 ~ N(mu, tau^2)."""
    y = jnp.asarray(np.random.default_rng(3).normal(size=GROUPS).cumsum())

    def log_density(z):
        mu, tau, x = z[0], jnp.exp(z[1]), z[2:]
        before = jnp.concatenate([mu[None], x[:-1]])
        lp = jax.scipy.stats.norm.logpdf
        hyper = lp(mu, 0.0, 5.0) + lp(z[1], 0.0, 1.0)
        return hyper + jnp.sum(lp(x, before, tau)) + jnp.sum(lp(y, x, 1.0))

    return Target.from_logdensity(log_density, dim=GROUPS + 2), np.asarray(y)


@eqx.filter_jit
def log_marginal(nested, g):
    return nested.log_marginal(g)


@eqx.filter_jit
def marginal_and_slope(nested, g):
    return jax.value_and_grad(nested.log_marginal)(g)


@eqx.filter_jit
def marginals_and_slopes(nested, g):
    return jax.vmap(jax.value_and_grad(nested.log_marginal))(g)


@pytest.mark.turns(2)
@pytest.mark.parametrize("g", [(0.0, 0.0), (0.3, -4.0), (-2.0, 1.5)])
def test_the_marginal_of_a_normal_hierarchy_is_exact(g):
    """Far from the centre too: one Newton step ends at the mode of a Gaussian."""
    y = normal_groups(GROUPS)
    nested = centred(normal_target(y))

    def marginal(mu, log_tau):
        std = np.sqrt(np.exp(2 * log_tau) + 0.5)
        hyper = norm.logpdf(mu, 0, 5) + norm.logpdf(log_tau)
        rest = norm.logpdf(y[:, 0] - y[:, 1], 0, np.sqrt(2)).sum()
        return hyper + norm.logpdf(y.mean(axis=1), mu, std).sum() + rest

    value, slope = marginal_and_slope(nested, jnp.asarray(g))
    assert np.isclose(value, marginal(*g), rtol=1e-10)
    h = 1e-5
    differences = [
        (marginal(g[0] + h, g[1]) - marginal(g[0] - h, g[1])) / (2 * h),
        (marginal(g[0], g[1] + h) - marginal(g[0], g[1] - h)) / (2 * h),
    ]
    assert np.allclose(slope, differences, rtol=1e-5, atol=1e-6)


def test_the_marginal_of_a_state_space_is_exact():
    target, y = walk_target()
    nested = centred(target, "chain")
    g = jnp.asarray([0.4, -0.7])
    value, slope = marginal_and_slope(nested, g)

    def marginal(mu, log_tau):
        tau2, steps = np.exp(2 * log_tau), np.arange(1, GROUPS + 1)
        covariance = tau2 * np.minimum.outer(steps, steps) + np.eye(GROUPS)
        left = y - mu
        _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
        quadratic = left @ np.linalg.solve(covariance, left)
        return norm.logpdf(mu, 0, 5) + norm.logpdf(log_tau) - 0.5 * (log_det + quadratic)

    assert np.isclose(value, marginal(*np.asarray(g)), rtol=1e-10)
    h = 1e-5
    up = marginal(0.4, -0.7 + h) - marginal(0.4, -0.7 - h)
    assert np.isclose(slope[1], up / (2 * h), rtol=1e-5)


def counts():
    return np.random.default_rng(1).poisson(np.exp(normal_groups(GROUPS)))


def volatility_target():
    """Log scales as a random walk: conditionals in a chain that are not Gaussian."""
    y = jnp.asarray(np.random.default_rng(4).normal(size=GROUPS))

    def log_density(z):
        mu, tau, x = z[0], jnp.exp(z[1]), z[2:]
        before = jnp.concatenate([mu[None], x[:-1]])
        lp = jax.scipy.stats.norm.logpdf
        hyper = lp(mu, 0.0, 5.0) + lp(z[1], 0.0, 1.0)
        return hyper + jnp.sum(lp(x, before, tau)) + jnp.sum(lp(y, 0.0, jnp.exp(x)))

    return Target.from_logdensity(log_density, dim=GROUPS + 2)


@pytest.mark.turns(2)
@pytest.mark.parametrize("case", ["laplace", "skewed", "chain"])
def test_values_and_slopes_of_many_globals_are_those_of_the_marginal(case):
    """The slope without derivatives of factors, by automatic ones and by differences."""
    target = volatility_target() if case == "chain" else poisson_target(counts())
    nested = centred(target, "chain" if case == "chain" else "arrowhead")
    nested = skewed_locals(nested) if case == "skewed" else nested
    g = np.random.default_rng(0).normal(0.0, 0.3, (3, 2))
    (found,) = at_points(nested, g, marginal=True)
    values, slopes = marginals_and_slopes(nested, jnp.asarray(g))
    assert np.allclose(found.values, values, rtol=1e-9)
    assert np.allclose(found.slopes, slopes, rtol=1e-4, atol=1e-5)
    h = 1e-4
    for j, move in enumerate(h * np.eye(2)):
        (up,), (down,) = (at_points(nested, to, marginal=True) for to in (g + move, g - move))
        assert np.allclose(found.slopes[:, j], (up.values - down.values) / (2 * h), rtol=1e-4, atol=1e-5)


def test_the_skewness_of_a_poisson_is_known():
    """With two rows a group and a prior of unit sd, the curvature is 2 exp(z) + 1."""
    nested = centred(poisson_target(counts()))
    std, third = skewness(nested)
    z = np.asarray(nested.parameters)[0]
    assert np.allclose(std, (2 * np.exp(z) + 1.0) ** -0.5)
    # By differences over 0.3 sds: sinh(0.3 s) / (0.3 s) times the derivative at the mode.
    share = np.sinh(0.3 * std) / (0.3 * std)
    assert np.allclose(third, -2 * np.exp(z) * std**3 * share)


def test_skewed_locals_are_those_of_the_laplace_where_conditionals_are_gaussian():
    laplace = centred(normal_target(normal_groups(GROUPS)))
    made = skewed_locals(laplace)
    g = jnp.asarray([0.2, -1.0])
    assert np.isclose(log_marginal(made, g), log_marginal(laplace, g), rtol=1e-10)
    assert np.allclose(eqx.filter_jit(lambda own, g: own.at(g).skew)(made, g), 0.0, atol=1e-8)


def test_the_elbo_over_skewed_locals_is_an_integral_over_each():
    """At any m, log s and a: E log p(z) with z = m + s t(e), plus the entropy, on a fine grid of e."""
    y, rng = counts(), np.random.default_rng(2)
    begun = NestedLaplace.begin(poisson_target(y), structure(), np.zeros((1, GROUPS)), np.zeros(2))
    made = NestedSkewed.start(begun, np.ones(GROUPS), np.zeros(GROUPS))
    m, log_s, a = x = np.stack(
        [rng.normal(size=GROUPS), np.full(GROUPS, -2.0), rng.uniform(-0.5, 0.5, GROUPS)]
    )
    g = np.array([0.1, 0.2])
    solution = Solution(jnp.asarray(x), local_root(jnp.exp(x[1])[None, None, :]))
    found = eqx.filter_jit(made.log_marginal_at)(jnp.asarray(g), solution)
    e = np.linspace(-10, 10, 4001)[:, None]
    z = m + np.exp(log_s) * (e * np.cosh(a) + np.sqrt(1 + e**2) * np.sinh(a))
    log_slope = np.log(np.cosh(a) + e / np.sqrt(1 + e**2) * np.sinh(a))
    terms = norm.logpdf(z, g[0], np.exp(g[1])) + poisson.logpmf(y.T[:, None, :], np.exp(z)).sum(axis=0)
    weight = norm.pdf(e) * (e[1] - e[0])
    stretched = np.sum(weight * log_slope)
    rest = np.sum(weight * (terms + log_s - norm.logpdf(e)))
    truth = norm.logpdf(g[0], 0, 5) + norm.logpdf(g[1]) + rest + stretched
    # A rule of seven nodes has E log t' to 3 % and polynomials, which the rest nearly is, exactly.
    assert abs(float(found) - truth) < 0.03 * stretched


@pytest.mark.slow
def test_skewed_locals_are_nearer_to_a_poisson_than_gaussian_ones():
    """Against quadrature over each local, which is independent of the others given the globals."""
    y = counts()
    target = poisson_target(y)
    laplace = centred(target)
    made = skewed_locals(laplace)
    g = jnp.asarray([0.1, 0.2])
    x = np.linspace(-12, 8, 40_001)
    width, own = x[1] - x[0], norm.logpdf(x, float(g[0]), np.exp(float(g[1])))
    truth = float(norm.logpdf(g[0], 0, 5) + norm.logpdf(g[1]))
    for row in y:
        terms = own + sum(count * x - np.exp(x) for count in row)
        truth += np.log(np.sum(np.exp(terms)) * width)
        truth -= sum(float(jax.lax.lgamma(count + 1.0)) for count in row)
    # It is a lower bound, and the Gaussian's Laplace value is none: its own ELBO is what counts.
    own_bound = float(log_marginal(made, g))
    skew_gap = truth - own_bound
    e = jr.normal(jr.key(0), (4000, GROUPS + 2)).at[:, :2].set(0.0)

    def elbo(nested):
        unit = FullRank.of_host(np.asarray(g), np.eye(2), np.float64)
        q = Hierarchical(of_globals=unit, of_locals=nested)
        z, log_q = carried(q, e)
        terms = jax.jit(jax.vmap(target.log_density))(z) - log_q - np.log(2 * np.pi)
        return np.mean(terms), np.std(terms) / 4000**0.5

    gaussian, error = elbo(laplace)
    assert 0 <= skew_gap < 0.02
    assert truth - gaussian > skew_gap + 5 * error
    own_elbo, error = elbo(made)
    assert abs(own_elbo - own_bound) < 5 * error + 1e-6


@eqx.filter_jit
def carried(q, e):
    return jax.vmap(q.transport_and_log_prob)(e)


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", ["arrowhead", "skewed", "chain"])
@pytest.mark.parametrize("flow", [False, True])
def test_hierarchies_on_the_host_are_those_on_the_device(kind, flow):
    target = volatility_target() if kind == "chain" else poisson_target(counts())
    nested = centred(target, "chain" if kind == "chain" else "arrowhead")
    nested = skewed_locals(nested) if kind == "skewed" else nested
    gaussian = FullRank.init(2, key=jr.key(1))
    of_globals = away(Triangular.of_gaussian(gaussian, [1, 0])) if flow else gaussian
    q = Hierarchical(of_globals=of_globals, of_locals=nested)
    e = np.random.default_rng(5).normal(size=(40, q.base_dim))
    z, log_q = carried(q, jnp.asarray(e))
    host_z, host_log_q = q.host_transport_and_log_prob(e)
    assert np.allclose(host_z, z, atol=1e-6)
    assert np.allclose(host_log_q, log_q, atol=1e-6)
    assert np.allclose(q.host_inverse(host_z), e, atol=1e-6)
    assert np.allclose(q.host_log_prob_at(host_z), log_q, atol=1e-6)


def test_locals_that_follow_linearly_are_carried_on_the_host_as_on_the_device():
    q = away(Hierarchical.init(GROUPS + 2, key=jr.key(1), structure=structure()))
    e = np.random.default_rng(5).normal(size=(40, q.base_dim))
    z, log_q = carried(q, jnp.asarray(e))
    assert np.allclose(q.host_transport(e), z, atol=1e-9)
    assert np.allclose(q.host_log_prob(e), log_q, atol=1e-9)
    assert np.allclose(q.host_inverse(np.asarray(z)), e, atol=1e-9)


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", ["arrowhead", "chain"])
@pytest.mark.parametrize("flow", [False, True])
def test_a_nested_hierarchy_is_a_family(kind, flow):
    target = normal_target(normal_groups(GROUPS)) if kind == "arrowhead" else walk_target()[0]
    gaussian = FullRank.init(2, key=jr.key(1))
    of_globals = away(Triangular.of_gaussian(gaussian, [1, 0])) if flow else gaussian
    q = Hierarchical(of_globals=of_globals, of_locals=centred(target, kind))
    e = jr.normal(jr.key(2), (q.base_dim,))
    move = jnp.asarray(1e-5 * np.random.default_rng(3).normal(size=q.dim))

    @eqx.filter_jit
    def facts(q, e):
        z, log_q, score = q.transport_and_score(e)
        densities = q.log_prob(jnp.stack([z, z + move, z - move]))
        return log_q, score, q.inverse(z), densities, jax.jacfwd(q.transport)(e)

    log_q, score, back, (here, ahead, behind), jacobian = facts(q, e)
    assert np.allclose(back, e, atol=1e-9)
    assert np.isclose(here, log_q)
    log_det = np.linalg.slogdet(np.asarray(jacobian))[1]
    assert np.isclose(log_q, float(jnp.sum(q.base.log_prob(e))) - log_det)
    assert np.isclose((ahead - behind) / 2, score @ move, rtol=1e-4)


def test_nested_locals_are_not_trained():
    q = Hierarchical(
        of_globals=FullRank.init(2, key=jr.key(0)),
        of_locals=centred(poisson_target(np.ones((GROUPS, 2)))),
    )
    e = jr.normal(jr.key(2), (q.base_dim,))
    slopes = eqx.filter_jit(eqx.filter_grad(lambda q: q.transport_and_log_prob(e)[1]))(q)
    assert all(np.all(np.asarray(x) == 0) for x in jax.tree.leaves(slopes.of_locals))
    assert any(np.any(np.asarray(x) != 0) for x in jax.tree.leaves(slopes.of_globals))


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", ["arrowhead", "chain"])
def test_a_hierarchy_starts_from_a_structured_gaussian_as_it_is(kind):
    other = member(Structure([3, 0], [[1, 5], [2, 4], [6, 8], [7, 9]]), kind)
    q = Hierarchical.init(other.dim, key=jr.key(0), structure=other.structure)
    start = q.start_from(other, key=jr.key(1))
    z, expected = eqx.filter_jit(lambda q: (z := q.sample(jr.key(2), 5), q.log_prob(z)))(other)
    assert np.allclose(eqx.filter_jit(lambda q, z: q.log_prob(z))(start, z), expected)
    another = Chain.init(other.dim, key=jr.key(0), structure=Structure.leading(other.dim, kind="chain"))
    assert not q.contains(another)


def test_the_skew_can_be_undone():
    e, a = jnp.linspace(-4, 4, 9), jnp.linspace(-1, 1, 9)
    assert np.allclose(unskewed(skewed(e, a), a), e)
    slopes = jax.vmap(jax.grad(skewed))(e, a)
    assert np.allclose(log_slope(e, a), jnp.log(slopes))


def test_the_prior_is_finite_far_down_the_neck():
    assert np.isfinite(prior(jnp.zeros(4).at[1].set(-20.0)))
