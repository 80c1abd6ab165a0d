"""Corrected draws, linear response, and what NUTS gets: against formulas and the real samplers."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import posteriors
import pytest
from numpyro.infer import MCMC, NUTS
from posteriors import full_rank, mean_field, newton

from quietgrad import LowRank, MeanField, RealNVP, Target
from quietgrad.diagnostics.for_nuts import nuts_start
from quietgrad.diagnostics.psis import smooth

MEAN, COVARIANCE = np.asarray(posteriors.MEAN), posteriors.COVARIANCE
INDEPENDENT = np.diagonal(np.linalg.inv(COVARIANCE)) ** -0.5


def test_the_tail_of_the_weights_is_that_of_the_large_ones(key):
    """Weights e^{x/2} with x exponential have a Pareto tail of shape 0.5; their inverses have none.

    arviz-stats takes minus the log weights: with the wrong sign every tail would look light.
    """
    x = np.asarray(jr.exponential(key, (4000,)))
    # The error of k-hat from m tail draws is about (1 + k) / sqrt(m), with m = 3 sqrt(4000).
    error = 1.5 / np.sqrt(3 * np.sqrt(4000))
    assert abs(smooth(0.5 * x).khat - 0.5) < 4 * error
    assert smooth(-0.5 * x).khat < 0


def test_weights_sum_to_one_and_ignore_what_is_not_finite():
    found = smooth(np.r_[np.zeros(50), -np.inf, np.nan])
    assert found.w.sum() == pytest.approx(1)
    assert found.w[50] == found.w[51] == 0
    assert found.effective == pytest.approx(50)
    assert not smooth(np.full(50, -np.inf)).usable


@pytest.mark.parametrize(("spread", "grid"), [(1e-7, 4.8e-7), (1e-6, 1e-6), (0.05, 0.03), (0.1, 0.1)])
def test_weights_that_were_rounded_are_worth_as_much(spread, grid):
    """As single precision rounds the log densities of a q that is nearly the posterior.

    Rounding moves each log weight by half a grid, and so the effective size by a factor of exp(2 grid).
    """
    log_weights = spread * np.random.default_rng(0).normal(size=2048)
    exact, rounded = smooth(log_weights), smooth(np.round(log_weights / grid) * grid)
    assert abs(math.log(rounded.effective / exact.effective)) <= 2 * grid
    assert rounded.usable


def test_resampling_takes_each_draw_as_often_as_its_weight_says():
    w = smooth(np.log(np.r_[np.ones(30), 3 * np.ones(30)]))
    rows = w.resample(np.random.default_rng(0), 1200)
    counts = np.bincount(rows, minlength=60)
    assert np.all(np.abs(counts - 1200 * w.w) <= 1)


def test_corrected_draws_have_the_posterior_s_mean(key):
    """Half an sd away is mended; q's own draws stay where they are."""
    result = full_rank(posteriors.gaussian(), MEAN + [0, 0, 0.5], COVARIANCE)
    found = result.posterior(key, draws=2000)
    error = 1 / np.sqrt(found.effective)
    # The weights' noise, and that of taking 2000 draws.
    assert np.all(np.abs(np.mean(found.points, axis=0) - MEAN) < 5 * (error + 1 / np.sqrt(2000)))
    assert found.reliable
    assert "importance-corrected" in str(found)
    own = np.mean(np.asarray(result.sample(key, 2000)), axis=0)
    assert np.all(np.abs(own - MEAN - [0, 0, 0.5]) < 5 / np.sqrt(2000))


def test_draws_that_cannot_be_corrected_say_so(key):
    found = full_rank(posteriors.gaussian(), MEAN + 6, COVARIANCE / 9).posterior(key)
    assert not found.reliable
    assert "cannot be relied on" in str(found)


@pytest.mark.parametrize("family", ["mean-field", "full-rank", "low-rank"])
def test_linear_response_is_exact_for_a_gaussian(family):
    target = posteriors.gaussian()
    if family == "mean-field":
        result = mean_field(target, MEAN, INDEPENDENT)
    elif family == "full-rank":
        result = full_rank(target, MEAN, COVARIANCE)
    else:
        q = LowRank.init(3, key=jr.key(0), rank=1).for_quadratic(MEAN, np.linalg.inv(COVARIANCE))
        result = posteriors.result(target, q)
    some = result.linear_response([2, 0])
    np.testing.assert_allclose(some.covariance, COVARIANCE[np.ix_([2, 0], [2, 0])], rtol=1e-3)
    np.testing.assert_allclose(result.linear_response().std, 1.0, rtol=1e-3)
    assert some.residual < 1e-4


def test_linear_response_mends_the_scales_of_a_logistic_regression():
    target = posteriors.logistic(similar=0.8)
    result, best = newton(target, MeanField), newton(target)
    own = np.sqrt(result.q.variance())
    weights = smooth_posterior(best)
    better = result.linear_response().std
    # Within a tenth: linear response is first order, and the posterior is not quite Gaussian.
    assert np.max(np.abs(better / weights - 1)) < 0.1
    assert np.min(own / weights) < 0.6


def smooth_posterior(result, draws=20_000):
    """Posterior sds by importance sampling from the best Gaussian; their error is below 0.02."""
    found = result.posterior(jr.key(1), draws)
    assert found.khat < 0.6
    assert found.effective > 10_000
    return np.std(found.points, axis=0)


def test_linear_response_says_what_it_cannot_do():
    flow = posteriors.result(posteriors.gaussian(), RealNVP.init(3, key=jr.key(0)))
    with pytest.raises(ValueError, match="location-scale family.*RealNVP is none"):
        flow.linear_response()
    result = mean_field(posteriors.gaussian(), MEAN, INDEPENDENT)
    with pytest.raises(ValueError, match=r"from 0 to 2; got \[3\]"):
        result.linear_response([3])
    saddle = mean_field(posteriors.bimodal(), [0.0] * 3, [0.1] * 3)
    with pytest.raises(ValueError, match="not at an optimum"):
        saddle.linear_response()


def test_nuts_gets_the_posterior_covariance_from_a_mean_field_fit():
    start = mean_field(posteriors.gaussian(), MEAN, INDEPENDENT).for_nuts(chains=3)
    np.testing.assert_allclose(start.inverse_mass_matrix, COVARIANCE, rtol=1e-6)
    assert start.points.shape == (3, 3)
    # Steps that leapfrogs accept shrink with the fourth root of the dimension.
    assert start.step_size == pytest.approx(3**-0.25)
    diagonal = mean_field(posteriors.gaussian(), MEAN, INDEPENDENT).for_nuts(dense=False)
    np.testing.assert_allclose(diagonal.inverse_mass_matrix, 1.0, rtol=1e-6)


@pytest.mark.slow
def test_numpyro_runs_from_it_without_looking_for_a_metric(key):
    target = posteriors.logistic(similar=0.9)
    start = newton(target, MeanField).for_nuts(chains=2)
    kernel = NUTS(potential_fn=lambda z: -target.log_density(z), **start.numpyro)
    mcmc = MCMC(kernel, num_warmup=30, num_samples=400, num_chains=2, chain_method="vectorized",
                progress_bar=False)  # fmt: skip
    mcmc.run(key, init_params=start.init_params, extra_fields=("num_steps",))
    draws = np.asarray(mcmc.get_samples())
    reference = newton(target).posterior(jr.key(1), 4000).points
    mean, std = np.mean(reference, axis=0), np.std(reference, axis=0)
    # NUTS in the right metric has about independent draws; a quarter of them is a safe count.
    assert np.all(np.abs(np.mean(draws, axis=0) - mean) / std < 5 / np.sqrt(200))
    # A trajectory in a good metric takes few leapfrog steps, whatever the correlations.
    assert np.mean(mcmc.get_extra_fields()["num_steps"]) < 8


def test_a_pytree_target_gets_pytrees_to_start_from():
    target = Target.from_logdensity(
        lambda p: -0.5 * p["a"] ** 2 - 0.5 * jnp.sum(p["b"] ** 2),
        example={"a": jnp.zeros(()), "b": jnp.zeros(2)},
    )
    start = mean_field(target, np.zeros(3), np.ones(3)).for_nuts(chains=5)
    assert jax.tree.map(jnp.shape, start.init_params) == {"a": (5,), "b": (5, 2)}


def test_nuts_starts_at_draws_of_the_posterior():
    """Taken by their weights where those can be relied on: q's own draws are half an sd off."""
    result = full_rank(posteriors.gaussian(), MEAN + [0, 0, 0.5], COVARIANCE)
    chains = 500
    found = nuts_start(result.target, result.q, np.random.default_rng(0), chains)
    # Weights of a Gaussian half an sd away are worth exp(-1/4) of as many draws.
    error = np.sqrt((1 + np.exp(0.25)) / chains)
    assert np.all(np.abs(np.mean(found.points, axis=0) - MEAN) < 5 * error)
    np.testing.assert_allclose(found.init_params, found.points)
