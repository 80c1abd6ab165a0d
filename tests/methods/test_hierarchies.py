"""Hierarchies by name: within a few hundredths of a nat of the exact answer, in both precisions."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from hierarchy_models import exact, normal_groups, normal_target
from scipy.stats import norm

import quietgrad as qg
from quietgrad.structure import structure_of

# What issue-level accuracy means here: nats below log Z, errors of means in sds, of sds in shares.
NATS, SHIFT, SHARE = 0.05, 0.05, 0.05
DRAWS = 20_000
# Single precision, which is what users have.
DOUBLE = False


def check(y, result):
    known = exact(y)
    # Rounding of a sum of 2n rows in the precision at hand, beside the noise of the estimate.
    floor = 4 * np.finfo(result.q.dtype).eps * abs(known.log_evidence)
    below = known.log_evidence - result.elbo
    assert -5 * result.elbo_error - floor < below < NATS + 5 * result.elbo_error + floor
    g = np.asarray(result.q.of_globals.sample(jr.key(9), DRAWS), float)
    error = 5 / DRAWS**0.5
    assert np.all(np.abs(g.mean(axis=0) - known.mean) < (SHIFT + error) * known.std)
    assert np.all(np.abs(np.log(g.std(axis=0) / known.std)) < SHARE + error)


@pytest.mark.turns(2)
@pytest.mark.parametrize(("groups", "tau"), [(100, 0.7), (1000, 1.0)])
def test_a_normal_hierarchy_is_right(groups, tau):
    y = normal_groups(groups, tau=tau)
    result = qg.fit(normal_target(y), "hierarchical", key=jr.key(0))
    assert result.status == "converged"
    assert "given 2 global ones" in result.explain()
    check(y, result)


@pytest.mark.slow
def test_a_normal_hierarchy_is_right_in_single_precision():
    with jax.enable_x64(DOUBLE):
        y = normal_groups(100, tau=0.5)
        result = qg.fit(normal_target(y), "hierarchical", key=jr.key(0))
        assert result.q.dtype == jnp.float32
        check(y, result)


@pytest.mark.slow
@pytest.mark.parametrize("groups", [10_000, 100_000])
def test_a_large_normal_hierarchy_is_right(groups):
    with jax.enable_x64(DOUBLE):
        y = normal_groups(groups)
        check(y, qg.fit(normal_target(y), "hierarchical", key=jr.key(0)))


@pytest.mark.slow
def test_an_arrowhead_is_the_best_gaussian_of_its_kind():
    """No better than the hierarchy, which holds it, and no worse than mean-field."""
    y = normal_groups(40)
    target = normal_target(y)
    found = qg.fit(target, "arrowhead", key=jr.key(0))
    assert found.status == "converged"
    below = exact(y).log_evidence - found.elbo
    simple = qg.fit(target, "mean-field", key=jr.key(0))
    assert found.elbo > simple.elbo
    full = qg.fit(target, "full-rank", key=jr.key(0))
    # The best full-rank Gaussian has these zeros, so that the two have the same ELBO.
    assert abs(found.elbo - full.elbo) < 0.15 + 5 * (found.elbo_error + full.elbo_error)
    assert 0 < below < 1.0


def test_block_newton_steps_that_leave_nothing_are_the_end():
    """Stochastic steps would need programs of their own. The posterior is a Gaussian of its kind."""
    y = np.random.default_rng(0).normal(size=8)

    def log_density(z):
        apart = jnp.sum((z[1:] - z[0]) ** 2) + jnp.sum((jnp.asarray(y) - z[1:]) ** 2)
        return -0.5 * (z[0] ** 2 + apart)

    target = qg.Target.from_logdensity(log_density, dim=9)
    result = qg.fit(target, "arrowhead", method=qg.Auto(by_clock=False), key=jr.key(0))
    assert result.status == "converged"
    assert "block Newton" in result.hint
    assert [d.kind for d in result.decisions] == ["search", "structure"]
    precision = 2 * np.eye(9)
    precision[0], precision[:, 0], precision[0, 0] = -1, -1, 9
    np.testing.assert_allclose(result.q.mean(), np.linalg.solve(precision, [0, *y]), atol=1e-6)


def test_a_target_without_structure_is_refused_by_name():
    matrix = jnp.asarray(np.random.default_rng(0).normal(size=(12, 12)))
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((matrix @ z) ** 2), dim=12)
    with pytest.raises(ValueError, match="no split of the coordinates"):
        qg.fit(target, "hierarchical", key=jr.key(0))


STEPS = 40


def local_level(y):
    """x_t ~ N(x_{t-1}, s^2), y_t ~ N(x_t, r^2), with log s and log r first."""
    lp = jax.scipy.stats.norm.logpdf

    def log_density(z):
        states, noise, x = jnp.exp(z[0]), jnp.exp(z[1]), z[2:]
        before = jnp.concatenate([jnp.zeros(1), x[:-1]])
        hyper = lp(z[0], -1.0, 0.5) + lp(z[1], 0.0, 0.5)
        return hyper + jnp.sum(lp(x, before, states)) + jnp.sum(lp(y, x, noise))

    return qg.Target.from_logdensity(log_density, dim=len(y) + 2)


def marginal(y, log_state, log_noise):
    """log p(y, log s, log r): the states are normal with a known covariance."""
    times = np.arange(1, len(y) + 1)
    covariance = np.exp(2 * log_state) * np.minimum.outer(times, times)
    covariance = covariance + np.exp(2 * log_noise) * np.eye(len(y))
    quadratic = y @ np.linalg.solve(covariance, y)
    hyper = norm.logpdf(log_state, -1.0, 0.5) + norm.logpdf(log_noise, 0.0, 0.5)
    return hyper - 0.5 * (np.linalg.slogdet(2 * np.pi * covariance)[1] + quadratic)


def test_a_state_space_is_right_by_its_chain():
    rng = np.random.default_rng(4)
    y = np.cumsum(0.3 * rng.normal(size=STEPS)) + rng.normal(size=STEPS)
    result = qg.fit(local_level(jnp.asarray(y)), "hierarchical", key=jr.key(0))
    assert result.status == "converged"
    assert "each tied to the one before given 2 global ones" in result.explain()
    first, second = np.linspace(-3.5, 1.0, 91), np.linspace(-2.0, 1.5, 71)
    values = np.array([[marginal(y, a, b) for b in second] for a in first])
    cell = (first[1] - first[0]) * (second[1] - second[0])
    log_evidence = float(np.log(np.sum(np.exp(values - values.max())) * cell) + values.max())
    below = log_evidence - result.elbo
    assert -5 * result.elbo_error < below < NATS + 5 * result.elbo_error
    weight = np.exp(values - log_evidence) * cell
    mean = np.array([weight.sum(axis=1) @ first, weight.sum(axis=0) @ second])
    g = np.asarray(result.q.of_globals.sample(jr.key(9), DRAWS), float)
    assert np.all(np.abs(g.mean(axis=0) - mean) < (SHIFT + 5 / DRAWS**0.5) * g.std(axis=0))


def test_a_scalar_that_is_weakly_tied_is_global():
    """Errors that are small where the model is probed hardly meet their degrees of freedom."""
    returns = jnp.asarray(0.02 * np.random.default_rng(5).standard_t(10, 200), jnp.float32)

    def model():
        step = numpyro.sample("sigma", dist.Exponential(50.0))
        s = numpyro.sample("s", dist.GaussianRandomWalk(scale=step, num_steps=200))
        nu = numpyro.sample("nu", dist.Exponential(0.1))
        numpyro.sample("r", dist.StudentT(df=nu, loc=0.0, scale=jnp.exp(s)), obs=returns)

    with jax.enable_x64(DOUBLE):
        found = structure_of(qg.Target.from_numpyro(model))
    assert found is not None
    assert (found.structure.k, found.structure.n, found.structure.kind) == (2, 200, "chain")
