"""The paper's models against the same densities written with scipy.stats."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from quietgrad.targets import (
    BayesianNeuralNetwork,
    HierarchicalPoisson,
    LogisticRegression,
    Target,
)

ROWS = 12


class Case(NamedTuple):
    """A small target, and its log prior and log likelihoods by an independent formula."""

    target: Target
    log_prior: Callable[[np.ndarray], float]
    log_likelihoods: Callable[[np.ndarray], np.ndarray]


def logistic() -> Case:
    random = np.random.default_rng(1)
    x, y = random.standard_normal((ROWS, 3)), random.integers(0, 2, ROWS).astype(float)

    def log_likelihoods(z: np.ndarray) -> np.ndarray:
        design = np.column_stack([np.ones(ROWS), x])
        return stats.bernoulli.logpmf(y, stats.logistic.cdf(design @ z))

    target = LogisticRegression().target(jnp.asarray(x), jnp.asarray(y))
    return Case(target, lambda z: stats.norm.logpdf(z, scale=10).sum(), log_likelihoods)


def poisson() -> Case:
    random = np.random.default_rng(2)
    site, group = np.divmod(np.arange(ROWS), 3)
    offset, count = random.standard_normal(ROWS), random.poisson(4.0, ROWS).astype(float)

    def log_prior(z: np.ndarray) -> float:
        alpha, beta, hyper = z[:2], z[2:6], z[6:]
        return (
            stats.norm.logpdf(hyper, scale=10).sum()
            + stats.norm.logpdf(alpha, scale=np.exp(hyper[1])).sum()
            + stats.norm.logpdf(beta, scale=np.exp(hyper[2])).sum()
        )

    def log_likelihoods(z: np.ndarray) -> np.ndarray:
        alpha = [z[0], z[1], 0.0]
        rates = [
            np.exp(z[6] + alpha[g] + z[2 + s] + o) for g, s, o in zip(group, site, offset, strict=True)
        ]
        return stats.poisson.logpmf(count, rates)

    rows = (jnp.asarray(group), jnp.asarray(site), jnp.asarray(offset), jnp.asarray(count))
    return Case(HierarchicalPoisson(3, 4).target(rows), log_prior, log_likelihoods)


def network() -> Case:
    random = np.random.default_rng(3)
    x, y = random.standard_normal((ROWS, 2)), random.standard_normal(ROWS)

    def log_likelihoods(z: np.ndarray) -> np.ndarray:
        # z = log alpha^2, log tau^2, W1 (2 x 5), b1 (5), W2 (5), b2
        output = [
            sum(z[17 + k] * max(row[0] * z[2 + k] + row[1] * z[7 + k] + z[12 + k], 0) for k in range(5))
            + z[22]
            for row in x
        ]
        return stats.norm.logpdf(y, output, np.exp(z[1]) ** 0.5)

    def log_prior(z: np.ndarray) -> float:
        return stats.norm.logpdf(z[2:], scale=np.exp(z[0]) ** 0.5).sum()

    target = BayesianNeuralNetwork(2, hidden=5).target(jnp.asarray(x), jnp.asarray(y))
    return Case(target, log_prior, log_likelihoods)


CASES = {"logistic": logistic, "poisson": poisson, "network": network}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]()


def points(case: Case, scale: float = 1.0) -> np.ndarray:
    assert case.target.dim is not None
    return scale * np.random.default_rng(0).standard_normal((5, case.target.dim))


def test_log_prior(case: Case):
    for z in points(case):
        found = case.target.log_prior(jnp.asarray(z))
        np.testing.assert_allclose(found, case.log_prior(z), rtol=1e-10)


def test_log_likelihood_of_each_row(case: Case):
    for z in points(case):
        found = case.target.log_likelihoods(jnp.asarray(z))
        np.testing.assert_allclose(found, case.log_likelihoods(z), rtol=1e-9)


def test_log_density_is_their_sum(case: Case):
    for z in points(case):
        expected = case.log_prior(z) + case.log_likelihoods(z).sum()
        np.testing.assert_allclose(case.target.log_density(jnp.asarray(z)), expected, rtol=1e-10)


def test_gradient_is_the_formulas_slope(case: Case):
    step, slope = 1e-6, jax.jit(jax.grad(case.target.log_density))
    for z in points(case):
        direction = np.random.default_rng(4).standard_normal(z.size)
        after, before = (
            case.log_prior(point) + case.log_likelihoods(point).sum()
            for point in (z + step * direction, z - step * direction)
        )
        found = slope(jnp.asarray(z)) @ direction
        # Rounding of central differences is about 1e-16 |f| / step, and |f| is below 1e4 here.
        np.testing.assert_allclose(found, (after - before) / (2 * step), rtol=1e-5, atol=1e-5)


def test_gradient_is_finite_far_out(case: Case):
    slope = jax.jit(jax.grad(case.target.log_density))
    for z in points(case, scale=20.0):
        assert jnp.all(jnp.isfinite(slope(jnp.asarray(z))))


@pytest.mark.turns(2)
def test_batches_of_an_epoch_average_to_the_full_log_density(case: Case):
    z = jnp.asarray(points(case)[0])
    batches = np.random.default_rng(5).permutation(ROWS).reshape(3, 4)
    found = [case.target.batch(jnp.asarray(rows)).log_density(z) for rows in batches]
    assert len({float(value) for value in found}) > 1
    np.testing.assert_allclose(np.mean(found), case.target.log_density(z), rtol=1e-12)


def test_a_batch_is_scaled_by_n_over_b(case: Case):
    z = points(case)[0]
    rows = [7, 2, 11]
    batch = eqx.filter_jit(lambda t, i: t.batch(i))(case.target, jnp.asarray(rows))
    assert (batch.rows, batch.size, batch.scale) == (3, ROWS, ROWS / 3)
    expected = case.log_prior(z) + ROWS / 3 * case.log_likelihoods(z)[rows].sum()
    np.testing.assert_allclose(batch.log_density(jnp.asarray(z)), expected, rtol=1e-10)


def test_dimensions_of_the_papers_models():
    assert LogisticRegression().target(jnp.zeros((1, 119)), jnp.zeros(1)).dim == 120
    assert HierarchicalPoisson(3, 32).dim == 37
    assert BayesianNeuralNetwork(11).dim == 653


def test_the_last_group_is_the_reference():
    model = HierarchicalPoisson(3, 1)
    rows = (jnp.array([2]), jnp.array([0]), jnp.zeros(1), jnp.array([3.0]))
    z = jnp.zeros(model.dim)
    assert model.log_likelihood(z.at[:2].set(5.0), rows) == model.log_likelihood(z, rows)
    assert model.log_likelihood(z.at[2].set(5.0), rows) != model.log_likelihood(z, rows)


def test_flat_prior_on_both_log_variances():
    model = BayesianNeuralNetwork(2, hidden=5)
    z = jnp.zeros(model.dim)
    assert model.log_prior(z.at[1].set(7.0)) == model.log_prior(z)


def test_a_batch_of_a_batch_has_the_numbers_of_the_whole():
    target, rows = logistic().target, np.array([7, 2, 9, 4])
    batch = target.batch(jnp.asarray(rows)).batch(jnp.array([3, 1]))
    assert batch.row_numbers is not None
    np.testing.assert_array_equal(batch.row_numbers, [4, 2])
    on_host = target.on_rows(rows).on_rows(np.array([3, 1]))
    assert on_host.row_numbers is not None
    np.testing.assert_array_equal(on_host.row_numbers, [4, 2])
    for ours, whole in zip(jax.tree.leaves(batch.data), jax.tree.leaves(target.data), strict=True):
        np.testing.assert_array_equal(ours, whole[np.array([4, 2])])
