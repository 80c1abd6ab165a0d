"""Posterior expectations from chains: exact where theory says so, unbiased, and with honest errors."""

import os
import subprocess
import sys
from types import SimpleNamespace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import xarray
from numpyro.diagnostics import effective_sample_size
from oracles import assert_mean

import quietgrad as qg
from quietgrad.estimators.weights import KFold, Ridge
from quietgrad.results.expectations.chain_errors import mean_error
from quietgrad.results.expectations.cross_fit import cross_fitted, stein_columns, whitened
from quietgrad.results.expectations.reading import points_of

MEAN = np.array([3.0, -1.0, 100.0])
ROOT = np.array([[2.0, 0, 0], [1.5, 0.5, 0], [0, 0.01, 0.02]])
COVARIANCE = ROOT @ ROOT.T


def gaussian():
    precision = jnp.asarray(np.linalg.inv(COVARIANCE))

    def log_density(z):
        return -0.5 * (z - MEAN) @ precision @ (z - MEAN)

    return qg.Target.from_logdensity(log_density, 3)


def autoregressive(rng, chains, draws, dim, slope):
    """Stationary chains of N(0, I) in which neighbours correlate by `slope`."""
    found = np.empty((chains, draws, dim))
    found[:, 0] = rng.normal(size=(chains, dim))
    for t in range(1, draws):
        found[:, t] = slope * found[:, t - 1] + np.sqrt(1 - slope**2) * rng.normal(size=(chains, dim))
    return found


@pytest.mark.parametrize("slope", [-0.4, 0.0, 0.7])
def test_errors_are_those_of_the_effective_number_of_draws(slope):
    series = autoregressive(np.random.default_rng(0), 4, 500, 5, slope)
    expected = np.std(series, axis=(0, 1)) / np.sqrt(effective_sample_size(series))
    # The two cut off the sum of autocorrelations a little differently.
    np.testing.assert_allclose(mean_error(series), expected, rtol=0.15)


def test_errors_see_chains_that_differ_and_constants():
    series = autoregressive(np.random.default_rng(0), 4, 500, 2, 0.0)
    apart = series + np.arange(4.0)[:, None, None] * 10
    assert np.all(mean_error(apart) > 50 * mean_error(series))
    np.testing.assert_array_equal(mean_error(np.ones((2, 10, 3))), np.zeros(3))


@pytest.mark.turns(2)
@pytest.mark.parametrize("order", [1, 2])
def test_fits_are_those_of_stein_weights(order):
    """Means of what is left are the weighted means of `stein_weights` with a fold for each chain."""
    rng = np.random.default_rng(1)
    points = rng.normal(size=(60, 3)) @ ROOT.T + MEAN
    scores = -np.linalg.solve(COVARIANCE, (points - MEAN).T).T + 0.3 * np.sin(points)
    values = np.column_stack([np.exp(0.1 * points[:, 0]), points[:, 1] ** 3])
    white = whitened(points, scores)
    groups = [slice(0, 20), slice(20, 40), slice(40, 60)]
    (left,) = cross_fitted(stein_columns(*white, order), values, groups, [0.01])
    w = qg.stein_weights(*white, order=order, solver=Ridge(0.01), folds=KFold(3))
    np.testing.assert_allclose(np.mean(left, axis=0), np.asarray(w) @ values, rtol=1e-9)


def literally_fitted(columns, values, groups, penalty):
    """For each group: a ridge regression with an intercept on all other draws, taken off the group's."""
    left = np.empty_like(values)
    for group in groups:
        others = np.delete(np.arange(len(columns)), group)
        c, phi = columns[others], values[others]
        scale = np.sum(c**2) / len(c)
        c, phi = c - np.mean(c, axis=0), phi - np.mean(phi, axis=0)
        gram = c.T @ c + penalty * scale * np.eye(c.shape[1])
        left[group] = values[group] - columns[group] @ (np.linalg.pinv(gram, hermitian=True) @ c.T @ phi)
    return left


@pytest.mark.parametrize("penalty", [0.0, 0.1])
@pytest.mark.parametrize("names", ["a", "ab", "aab", "aaab"])
def test_fits_are_those_of_ridge_regressions_one_by_one(names, penalty):
    """Of a single column, of several, and of columns that are given more than once."""
    rng = np.random.default_rng(2)
    series = {name: rng.normal(size=60) for name in "ab"}
    columns = np.column_stack([series[name] for name in names])
    values = np.column_stack([np.exp(series["a"]), series["b"] ** 3 + rng.normal(size=60)])
    groups = [slice(0, 20), slice(20, 40), slice(40, 60)]
    (left,) = cross_fitted(columns, values, groups, [penalty])
    np.testing.assert_allclose(left, literally_fitted(columns, values, groups, penalty), atol=1e-9)


@pytest.mark.parametrize("chains", [1, 4])
def test_a_gaussian_is_known_all_but_exactly(chains):
    """From draws that are not even of it: the plain mean is off, and its error does not say so."""
    rng = np.random.default_rng(2)
    points = 1.3 * rng.normal(size=(chains, 800 // chains, 3)) @ ROOT.T + MEAN + [0.5, 0.2, 0.01]
    with pytest.warns(UserWarning, match="standard errors from zero: the draws are of another"):
        found = qg.posterior_expectations(gaussian(), points)
    std = np.sqrt(np.diag(COVARIANCE))
    # The penalty, 0.001 of the columns' size over 600 draws and more, is all that is left.
    np.testing.assert_allclose(found.mean["z"], MEAN, rtol=0, atol=1e-3 * np.max(std))
    np.testing.assert_allclose(found.std["z"], std, rtol=1e-3)
    assert np.all(np.abs(found.plain_mean["z"] - MEAN) > 0.05 * std)
    assert np.all(found.gain["z"] > 1000)


def bent(z):
    """A normal and a coordinate that follows its square: E z_2 = 0.3, and moments in closed form."""
    return -0.5 * z[0] ** 2 - 0.5 * ((z[1] - 0.3 * z[0] ** 2) / 0.5) ** 2


def bent_draws(rng, chains, draws):
    """Chains in which neighbours correlate."""
    e = autoregressive(rng, chains, draws, 2, 0.5)
    return np.stack([e[..., 0], 0.3 * e[..., 0] ** 2 + 0.5 * e[..., 1]], axis=-1)


ASKED = {
    "mean": lambda z: z,
    "tilted": lambda z: jnp.exp(0.5 * z[0]),
    "above": lambda z: (z[0] > 0).astype(float),
}
TRUTH = np.array([0.0, 0.3, np.exp(0.125), 0.5])


@pytest.mark.turns(2)
@pytest.mark.parametrize("chains", [1, 4], ids=["one chain", "four chains"])
def test_means_are_unbiased_and_errors_honest(chains):
    target, rng = qg.Target.from_logdensity(bent, 2), np.random.default_rng(3)
    means, errors, plain = [], [], []
    for _ in range(150):
        found = qg.posterior_expectations(target, bent_draws(rng, chains, 400 // chains), ASKED)
        means.append(np.concatenate([np.atleast_1d(found.mean[name]) for name in ASKED]))
        errors.append(np.concatenate([np.atleast_1d(found.error[name]) for name in ASKED]))
        plain.append(np.concatenate([np.atleast_1d(found.plain_mean[name]) for name in ASKED]))
    means, errors = np.array(means), np.array(errors)
    assert_mean(means, TRUTH)
    # A variance of 150 numbers is known to 12 %, the mean of squared errors better. Errors of the best
    # of five estimates are a little too small, by the best's luck.
    ratio = np.mean((means - TRUTH) ** 2, axis=0) / np.mean(errors**2, axis=0)
    assert np.all((ratio > 0.6) & (ratio < 1.6)), ratio
    gains = np.mean((np.array(plain) - TRUTH) ** 2, axis=0) / np.mean((means - TRUTH) ** 2, axis=0)
    # The score is a cubic polynomial here, and the third function has a step.
    assert np.all(gains > [2, 4, 2, 1.4]), gains


def test_control_variates_that_do_not_help_are_not_used():
    """Heavy tails: under a Cauchy density the score explains nothing of a far-out indicator."""
    target = qg.Target.from_logdensity(lambda z: -jnp.sum(jnp.log1p(z**2)), 2)
    draws = np.random.default_rng(4).standard_cauchy(size=(4, 250, 2))
    asked = {"far": lambda z: (jnp.abs(z[0]) > 50).astype(float)}
    found = qg.posterior_expectations(target, draws, asked)
    assert found.order["far"] == 0
    assert found.mean["far"] == found.plain_mean["far"]
    forced = qg.posterior_expectations(target, draws, asked, order=2)
    assert forced.order["far"] == 2
    assert forced.mean["far"] != found.mean["far"]


@pytest.mark.slow
def test_single_precision_gives_nearly_the_same():
    """In a process of its own: the precision of JAX is that of the process."""
    code = """
import numpy as np, jax.numpy as jnp, quietgrad as qg
rng = np.random.default_rng(7)
z = rng.normal(size=(4, 250, 3)) * [1.0, 1e-3, 1e3] + [2.0, 0.1, 1e4]
assert jnp.zeros(()).dtype == jnp.float32
target = qg.Target.from_logdensity(
    lambda z: -0.5 * jnp.sum(((z - jnp.array([2.0, 0.1, 1e4])) / jnp.array([1.0, 1e-3, 1e3])) ** 2), 3
)
found = qg.posterior_expectations(target, z)
print(*(found.mean["z"] - [2.0, 0.1, 1e4]) / [1.0, 1e-3, 1e3], *found.gain["z"])
"""
    environment = {name: value for name, value in os.environ.items() if name != "JAX_ENABLE_X64"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    numbers = np.array(done.stdout.split(), float)
    # Points are rounded to about 1e-5 of their deviations, which is far below the plain mean's 0.03.
    assert np.all(np.abs(numbers[:3]) < 1e-4), numbers
    assert np.all(numbers[3:] > 1e4), numbers


def test_it_is_printed_row_by_row(key):
    found = qg.posterior_expectations(
        gaussian(), MEAN + np.asarray(jr.normal(key, (4, 100, 3))) @ ROOT.T
    )
    rows = found.rows()
    assert [row["label"] for row in rows] == ["z[0]", "z[1]", "z[2]"]
    assert rows[1]["mean"] == found.mean["z"][1]
    assert str(found).splitlines()[0].startswith("4 chains of 100 draws")
    assert len(str(found).splitlines()) == 5
    assert found.frame().loc["z[2]", "error"] == found.error["z"][2]


def test_points_are_taken_as_they_come_and_one_chain_without_its_axis():
    points = np.random.default_rng(8).normal(size=(2, 5, 3))
    np.testing.assert_array_equal(points_of(gaussian(), points), points)
    np.testing.assert_array_equal(points_of(gaussian(), points[0]), points[:1])


@pytest.mark.parametrize("axes", [("chain", "draw"), ("draw", "chain")])
def test_axes_of_a_posterior_are_known_by_their_names(axes):
    """Coordinates are in the order of the target's own points, whatever the order of the variables."""
    target = qg.Target.from_logdensity(
        lambda p: -jnp.sum(p["a"] ** 2) - p["b"] ** 2, example={"a": np.zeros(2), "b": np.zeros(())}
    )
    rng = np.random.default_rng(9)
    a, b = rng.normal(size=(2, 5, 2)), rng.normal(size=(2, 5))
    stored = xarray.Dataset({"b": (("chain", "draw"), b), "a": (("chain", "draw", "of a"), a)})
    stored = stored.transpose("of a", *axes)
    expected = np.concatenate([a, b[:, :, None]], axis=2)
    for given in (stored, SimpleNamespace(posterior=stored)):
        np.testing.assert_array_equal(points_of(target, given), expected)


@pytest.mark.parametrize(
    ("draws", "message"),
    [
        (np.zeros((4, 100, 2)), r"shape \(chains, draws, 3\) or, for one chain, \(draws, 3\)"),
        (np.zeros((2, 5, 3)), "at least 20 draws"),
        (np.full((2, 50, 3), np.nan), "not finite at 100 of 100 draws"),
        ({"a": np.zeros((2, 50))}, "points without names"),
    ],
)
def test_draws_that_do_not_fit_are_refused(draws, message):
    with pytest.raises(ValueError, match=message):
        qg.posterior_expectations(gaussian(), draws)


def test_other_arguments_are_refused():
    draws = np.zeros((2, 50, 3))
    with pytest.raises(ValueError, match="order must be 1, 2 or None"):
        qg.posterior_expectations(gaussian(), draws, order=3)
    with pytest.raises(TypeError, match="draws must be an ArviZ posterior"):
        qg.posterior_expectations(gaussian(), None)
