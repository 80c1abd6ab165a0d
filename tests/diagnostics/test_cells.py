"""Cells of modes by chains whose posterior is known, and bridges by relations that hold exactly."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from quietgrad.diagnostics.cells import Cells, _joined, _Moments, bridge, by_cells, nearest
from quietgrad.diagnostics.chains import Chains
from quietgrad.diagnostics.comparison import unknown
from quietgrad.diagnostics.draws import Draws
from quietgrad.diagnostics.metric import Metric
from quietgrad.diagnostics.settings import Diagnostics
from quietgrad.families import MeanField

MODES = np.array([[-8.0, 0.0], [8.0, 0.0]])
UNIT = Metric(np.zeros(2), np.ones(2))
# Of the posterior: weights of its modes, and their sds. q is one Gaussian over both.
WEIGHTS, STD = np.array([0.6, 0.4]), np.array([1.2, 1.3])
LOC, WIDE = np.array([3.0, 0.0]), np.array([8.0, 1.0])
MEAN = WEIGHTS @ MODES
VARIANCE = STD**2 + WEIGHTS @ (MODES - MEAN) ** 2


def log_normal(z, loc, std):
    return np.sum(-0.5 * ((z - loc) / std) ** 2 - np.log(std) - 0.5 * math.log(2 * math.pi), axis=-1)


def log_posterior(z):
    modes = zip(WEIGHTS, MODES, strict=True)
    return np.logaddexp(*(np.log(w) + log_normal(z, mode, STD) for w, mode in modes))


def drawn(rng, count=4000):
    e = rng.standard_normal((count, 2))
    z = LOC + WIDE * e
    return Draws(e, z, log_normal(z, LOC, WIDE), log_posterior(z), np.zeros_like(z), 1)


def chains(rng, count=60, moves=60, *, crossing=0):
    """Independent states around the mode where each began; some go over to the other."""
    began = np.arange(count) % 2
    start = MODES[began] + STD * rng.standard_normal((count, 2))
    at = np.tile(began, (moves, 1))
    at[:, :crossing] = 1 - at[:, :crossing]
    z = MODES[at] + STD * rng.standard_normal((moves, count, 2))
    return Chains(start, z, log_posterior(z), 0.9)


def compared(seed, **how):
    rng = np.random.default_rng(seed)
    draws, moved = drawn(rng), chains(rng, **how)
    q = MeanField(jnp.asarray(LOC), jnp.log(jnp.asarray(WIDE)))
    return by_cells(q, draws, draws.z, moved, moved, MODES, UNIT)


def test_cells_have_the_posterior_s_masses_and_moments():
    """Within five of the errors that are stated; q's share of a mode is that of its draws."""
    found = compared(0)
    assert found is not None
    assert found.share[1] == pytest.approx(0.646, abs=5 * 0.5 / math.sqrt(4000))  # Phi(3 / 8)
    assert np.all(np.abs(found.mass - WEIGHTS) < 5 * found.error)
    assert np.all(found.error < 0.1)
    whole, std = found.whole, np.sqrt(VARIANCE)
    noise = WIDE / std / math.sqrt(4000)
    assert np.all(np.abs(whole.shift - (MEAN - LOC) / std) < 5 * (whole.shift_error + noise))
    ratio = np.log(WIDE / std)
    assert np.all(np.abs(whole.log_ratio - ratio) < 5 * (whole.log_ratio_error + 1 / math.sqrt(8000)))
    # A q that is 23 % too narrow is told from the right one, and from one that is too wide.
    assert whole.log_ratio_error[1] < 0.04


def test_masses_sum_to_one_and_so_two_of_them_have_one_error():
    """d W_1 = -d W_2, whatever the errors of the two bridges are."""
    found = compared(1)
    assert found is not None
    assert np.sum(found.mass) == pytest.approx(1, abs=1e-12)
    assert found.error[0] == pytest.approx(found.error[1], rel=1e-9)


@pytest.mark.parametrize(("crossing", "separate"), [(0, True), (4, True), (12, False)])
def test_chains_that_cross_have_no_cells(crossing, separate):
    """A tenth of 60 chains may."""
    assert (compared(2, crossing=crossing) is not None) is separate


def test_too_few_chains_in_a_cell_say_nothing():
    """Six are the least; of eleven chains the second mode has five."""
    assert compared(3, count=11) is None
    assert compared(3, count=12) is not None


@pytest.mark.parametrize(
    ("mass", "error", "right", "agrees"),
    [
        ([0.5, 0.5], 0.01, True, True),
        ([0.45, 0.55], 0.01, True, True),
        ([0.3, 0.7], 0.01, True, False),
        ([0.5, 0.5], 0.2, True, False),
        ([0.45, 0.55], 0.06, True, False),
        ([0.5, 0.5], 0.01, False, False),
    ],
)
def test_modes_agree_if_masses_are_known_to_be_near_and_each_is_right(mass, error, right, agrees):
    """Near is 0.1, the error included."""
    assert Diagnostics().mode_mass == 0.1
    cells = Cells(
        MODES,
        np.full(2, 0.5),
        np.array(mass),
        np.full(2, error),
        np.array([True, right]),
        unknown(2),
    )
    assert cells.agree() is agrees


def test_the_nearest_mode_does_not_depend_on_units():
    rng = np.random.default_rng(4)
    z, modes, units = rng.normal(size=(200, 3)), rng.normal(size=(4, 3)), np.array([1e-3, 1.0, 50.0])
    metric = Metric(np.zeros(3), np.array([1.0, 0.5, 2.0]))
    plain = nearest(z, modes, metric)
    assert len(set(plain)) == 4
    np.testing.assert_array_equal(nearest(modes, modes, metric), np.arange(4))
    rescaled = nearest(z * units, modes * units, Metric(metric.center, metric.root * units))
    np.testing.assert_array_equal(rescaled, plain)


def test_a_bridge_is_moved_by_a_constant_as_the_ratio_is():
    rng = np.random.default_rng(5)
    ratio, reached = rng.normal(size=300), rng.normal(0.5, 1.0, (4, 40))
    (found, error), (moved, same) = bridge(ratio, reached), bridge(ratio + 70.0, reached + 70.0)
    assert moved == pytest.approx(found + 70.0, abs=1e-9)
    assert same == pytest.approx(error, rel=1e-9)
    assert bridge(np.full(300, 2.5), np.full((4, 40), 2.5)) == pytest.approx((2.5, 0.0), abs=1e-12)


@pytest.mark.parametrize(("draws", "chains"), [(4000, 30), (60, 600)])
def test_the_stated_error_of_a_bridge_is_that_of_many(draws, chains):
    """N(0, 1) for q and 3 N(0.5, 1) for p. Sixty bridges: the mean square of their errors, in stated
    ones, is chi-square of 60 over 60, with an sd of sqrt(2 / 60)."""
    rng = np.random.default_rng(6)

    def log_ratio(z):
        return math.log(3) + 0.5 * z - 0.125

    errors = []
    for _ in range(60):
        found, error = bridge(
            log_ratio(rng.normal(size=draws)), log_ratio(rng.normal(0.5, 1, (1, chains)))
        )
        errors.append((found - math.log(3)) / error)
    assert abs(np.mean(np.square(errors)) - 1) < 5 * math.sqrt(2 / 60)


def test_errors_of_the_whole_are_those_of_the_cells_by_linear_propagation():
    """Derivatives of the mixture's mean and variance by differences, with masses that are normalised."""
    rng = np.random.default_rng(7)
    mass, mean, variance = np.array([0.5, 0.3, 0.2]), 5 * rng.normal(size=3), rng.uniform(0.5, 2, 3)
    values = np.stack([mass, mean, variance])
    errors = rng.uniform(0.01, 0.05, (3, 3))

    def mixture(values):
        mass, mean, variance = values
        mass = mass / np.sum(mass)
        middle = mass @ mean
        return np.array([middle, mass @ (variance + (mean - middle) ** 2)])

    square, h = np.zeros(2), 1e-6
    for place in np.ndindex(3, 3):
        move = np.zeros((3, 3))
        move[place] = h
        slope = (mixture(values + move) - mixture(values - move)) / (2 * h)
        square += (slope * errors[place]) ** 2
    parts = [
        _Moments(*(np.array([x]) for x in (m, dm, v, dv)))
        for m, dm, v, dv in zip(mean, errors[1], variance, errors[2], strict=True)
    ]
    numbers = rng.normal(size=(50, 1))
    found = _joined(numbers, mass, errors[0], parts)
    middle, whole = mixture(values)
    std = math.sqrt(whole)
    assert found.shift[0] == pytest.approx((middle - np.mean(numbers)) / std, rel=1e-12)
    assert found.log_ratio[0] == pytest.approx(math.log(np.std(numbers) / std), rel=1e-12)
    assert found.shift_error[0] == pytest.approx(math.sqrt(square[0]) / std, rel=1e-6)
    assert found.log_ratio_error[0] == pytest.approx(0.5 * math.sqrt(square[1]) / whole, rel=1e-6)
