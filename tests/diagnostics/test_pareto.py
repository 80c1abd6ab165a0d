"""The Pareto fit against the reference implementation in arviz-stats, and against exact draws."""

import numpy as np
import pytest
from arviz_stats.base.array import array_stats

from quietgrad.diagnostics.pareto import fit_pareto, pareto_quantiles, smoothed_tail
from quietgrad.diagnostics.psis import Weights, smooth, tail_size


@pytest.mark.parametrize("shape", [-0.5, 0.0, 0.3, 0.7, 1.2])
@pytest.mark.parametrize("size", [50, 500, 5000])
def test_weights_are_those_of_arviz(shape, size):
    rng = np.random.default_rng([size, int(10 * shape) + 20])
    log_weights = np.log(pareto_quantiles(rng.random(size), shape, 1.0))
    log_weights -= np.max(log_weights)
    ours, khat = smoothed_tail(log_weights, tail_size(size))
    theirs, reference = array_stats.psislw(-log_weights)
    assert khat == pytest.approx(float(reference), abs=1e-10)
    np.testing.assert_allclose(np.exp(ours) / np.sum(np.exp(ours)), np.exp(theirs), rtol=1e-9)


@pytest.mark.parametrize("shape", [-0.3, 0.2, 0.8])
def test_shape_and_scale_of_exact_quantiles(shape):
    """At quantiles there is no noise: what is left is the prior, worth 10 of n draws."""
    n = 20_000
    found, scale = fit_pareto(pareto_quantiles((np.arange(n) + 0.5) / n, shape, 3.0))
    assert found == pytest.approx(shape, abs=10 / n + 0.01)
    assert scale == pytest.approx(3.0, rel=0.01)


def test_ties_of_single_precision_have_a_shape():
    rng = np.random.default_rng(0)
    rounded = np.round(4 * rng.standard_normal(2000)) / 4
    weights = smooth(rounded)
    assert np.isfinite(weights.khat)
    assert np.sum(weights.w) == pytest.approx(1.0)


@pytest.mark.parametrize(("draws", "limit"), [(100, 0.5), (1000, 2 / 3), (10**5, 0.7)])
def test_few_draws_have_a_stricter_limit(draws, limit):
    """1 - 1 / log10(draws), at most 0.7; where one draw has a tenth of the weight, k-hat decides."""
    w = np.full(draws, 0.9 / (draws - 1))
    w[3] = 0.1
    assert Weights(w, 0.0).limit == pytest.approx(limit)
    assert Weights(w, limit - 0.01).usable
    assert not Weights(w, limit + 0.01).usable


@pytest.mark.parametrize("gap", [3.0, 500.0, 5000.0])
def test_weights_sum_to_one_however_much_one_draw_outweighs_the_others(gap):
    """As far apart as those of a q that has missed the posterior, and at any height."""
    log_weights = np.random.default_rng(1).standard_normal(200)
    log_weights[17] += gap
    weights = smooth(log_weights).w
    assert np.sum(weights) == pytest.approx(1.0)
    assert np.argmax(weights) == np.argmax(log_weights)
    np.testing.assert_allclose(smooth(log_weights + 1e4).w, weights, rtol=1e-6, atol=1e-300)
