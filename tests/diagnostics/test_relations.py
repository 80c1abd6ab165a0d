"""Relations that parts of a verdict keep: late states, chains at rest, dips, linear response."""

import statistics

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from quietgrad import LowRank, RealNVP, Target
from quietgrad.diagnostics.chains import Chains
from quietgrad.diagnostics.comparison import by_chains, by_weights
from quietgrad.diagnostics.draws import Draws
from quietgrad.diagnostics.expected_gain import gain_at
from quietgrad.diagnostics.linear_response import PAIRS, linear_response
from quietgrad.diagnostics.metric import Metric, metric_of
from quietgrad.diagnostics.modes import dips, stays_away
from quietgrad.diagnostics.propriety.findings import displaced, furthest
from quietgrad.diagnostics.psis import smooth
from quietgrad.diagnostics.settings import Diagnostics
from quietgrad.diagnostics.shapes import Shapes, shapes_of
from quietgrad.evaluation.points import Points, sobol_pairs
from quietgrad.families import split


def chains(z, start=None):
    values = np.arange(z.shape[0] * z.shape[1], dtype=float).reshape(z.shape[:2])
    return Chains(z[0] if start is None else start, z, values, 0.9)


@pytest.mark.parametrize("moves", [3, 9, 10])
def test_late_states_are_the_last_two_thirds(moves):
    made = chains(np.random.default_rng(0).standard_normal((moves, 4, 2)))
    left_out = moves // 3
    np.testing.assert_array_equal(made.late(), made.z[left_out:])
    np.testing.assert_array_equal(made.late_values(), made.values[left_out:])
    np.testing.assert_allclose(made.averages(), np.mean(made.z[left_out:], axis=0))


def test_chains_that_do_not_move_say_nothing():
    """In the first coordinate; in the second, states are independent of where they began."""
    rng = np.random.default_rng(1)
    start = rng.standard_normal((40, 2))
    z = rng.standard_normal((12, 40, 2))
    z[..., 0] = start[:, 0] + 1e-3 * z[..., 0]
    found = by_chains(rng.standard_normal((500, 2)), chains(z, start))
    assert found.shift_error[0] == found.log_ratio_error[0] == np.inf
    # 40 chains of 8 late states each, and five times as much.
    assert found.shift_error[1] < 5 / np.sqrt(320)
    assert found.log_ratio_error[1] < 5 / np.sqrt(640)


def test_chains_on_their_way_are_followed_to_their_end():
    """They keep a third of where they began, so that a third of the way to their mean of 2 is left."""
    rng = np.random.default_rng(2)
    start = rng.standard_normal((200, 1))
    noise = np.sqrt(1 - 1 / 9) * rng.standard_normal((12, 200, 1))
    found = by_chains(2 + rng.standard_normal((2000, 1)), chains(start / 3 + 4 / 3 + noise, start))
    # q has the mean at which they will come to rest, and not the one that they have by now.
    assert abs(found.shift[0]) < 5 * np.hypot(found.shift_error[0], 1 / np.sqrt(2000))
    assert 2 / 3 > 5 * found.shift_error[0]


def test_what_a_flow_could_gain_does_not_depend_on_the_origin():
    rng = np.random.default_rng(4)
    q = RealNVP.init(2, key=jax.random.key(0))
    e = rng.standard_normal((64, 2))
    drawn = Draws(e, e, -0.5 * np.sum(e**2, axis=1), np.zeros(64), rng.standard_normal((64, 2)), 8)
    metric = Metric(np.zeros(2), np.ones(2))
    here, there = (gain_at(q, drawn._replace(z=e + aside), metric) for aside in (0.0, 7.0))
    np.testing.assert_allclose(there, here, rtol=1e-9)


def test_a_slope_is_no_dip():
    """Between the modes of two Gaussians there is one, from a mode down its side there is none."""
    target = Target.from_logdensity(
        lambda z: jnp.logaddexp(-0.5 * jnp.sum((z - 3) ** 2), -0.5 * jnp.sum((z + 3) ** 2)), dim=2
    )
    points = Points(target, np.dtype(float))
    mode, other, beyond = np.full(2, 3.0), np.full(2, -3.0), np.full(2, 6.0)
    assert dips(points, mode, other)
    assert dips(points, other, mode)
    assert not dips(points, mode, beyond)
    assert not dips(points, beyond, mode)


def test_linear_response_is_the_inverse_of_the_elbo_s_hessian():
    """By a dense matrix at the same draws. The cubic term couples means with scales, whose entropy is
    curved where there are factors."""
    factor = jnp.array([[0.6, -0.4, 0.3]])
    precision = jnp.linalg.inv(jnp.eye(3) + factor.T @ factor)

    def log_density(z):
        return -0.5 * z @ precision @ z + 0.08 * jnp.sum(z**3) - 0.02 * jnp.sum(z**4)

    q = LowRank(loc=jnp.full(3, 0.1), log_std=jnp.full(3, -0.1), factor=0.9 * factor)
    target = Target.from_logdensity(log_density, dim=3)
    e = jnp.asarray(sobol_pairs(q.base, PAIRS, q.base_dim, np.random.default_rng(2)))
    params, build = split(q)
    flat, unravel = ravel_pytree(params)

    def elbo(flat):
        member = build(unravel(flat))
        return jnp.mean(jax.vmap(log_density)(jax.vmap(member.transport)(e))) + member.entropy()

    inverse = np.linalg.inv(-np.asarray(jax.jit(jax.hessian(elbo))(flat)))
    numbers = ravel_pytree(split(LowRank(jnp.ones(3), jnp.zeros(3), jnp.zeros((1, 3))))[0])[0]
    places = np.flatnonzero(np.asarray(numbers))
    found = linear_response(target, q, np.random.default_rng(2), [0, 1, 2], tolerance=1e-8)
    # Conjugate gradients end at a relative residual of 1e-8, and the matrix has a condition below 100.
    np.testing.assert_allclose(found.covariance, inverse[np.ix_(places, places)], rtol=1e-5)


def test_the_worst_draws_have_no_say_in_the_metric():
    """Whatever their gradients are; of a Gaussian, those of the others show its covariance exactly."""
    rng = np.random.default_rng(3)
    std = np.array([0.5, 2.0])
    z = 1.3 * std * rng.standard_normal((400, 2))
    values, slope = -0.5 * np.sum((z / std) ** 2, axis=1), -z / std**2
    worst = values < np.quantile(values, 0.9 * Diagnostics().left_out)
    assert np.count_nonzero(worst) > 0
    slope[worst] = 1e6 * rng.standard_normal((np.count_nonzero(worst), 2))
    metric = metric_of(Draws(z, z, values, values, slope, 1))
    np.testing.assert_allclose(metric.covariance, np.diag(std**2), atol=1e-9)


def two_modes(log_mass):
    """Unit Gaussians at -5 and 5 of the first coordinate, the second one heavier by `log_mass`."""

    def log_density(z):
        heights = jnp.stack([-0.5 * (z[0] + 5) ** 2, log_mass - 0.5 * (z[0] - 5) ** 2])
        return jax.nn.logsumexp(heights) - 0.5 * jnp.sum(z[1:] ** 2)

    return log_density


@pytest.mark.parametrize(("log_mass", "counts"), [(2.0, True), (-1.0, True), (-8.0, False)])
def test_scouts_tell_of_a_mode_by_its_mass(log_mass, counts):
    """Lighter than q's own, too, down to the mass that matters; and by no coordinate's scale."""
    log_density, rng = two_modes(log_mass), np.random.default_rng(3)
    for scale in (1.0, 30.0):
        stretch = np.array([1.0, scale])
        metric = Metric(np.zeros(2), stretch)
        stretched = Target.from_logdensity(lambda z: log_density(z / stretch), dim=2)  # noqa: B023
        there = Points(stretched, np.dtype(float))

        def states(place, count):
            z = stretch * (np.array([place, 0.0]) + rng.standard_normal((60, count, 2)))  # noqa: B023
            values = there(z.reshape(-1, 2))[0].reshape(z.shape[:2])  # noqa: B023
            return Chains(z[0], z, values, 0.9)

        found = stays_away(there, states(-5.0, 40), states(5.0, 10), metric, stretch)
        assert bool(found) is counts
        # Heights are averages of chi squares, rooms logs of sds of 40 states: errors below 0.2 each.
        assert all(abs(one.log_mass - log_mass) < 1.0 for one in found)
        assert all(abs(one.place[0] - 5) < 1.0 for one in found)


SETTINGS = Diagnostics()


def scores(estimates, errors, truth):
    """Their spread must be one and their mean zero if errors are what they say."""
    z = (np.array(estimates) - truth) / np.array(errors)
    assert np.all(np.isfinite(z))
    return z


def assert_honest(z, *, nonlinear=0.0):
    """Of some hundred replicates: the errors of a mean and of a spread, and what is of higher order."""
    assert abs(np.mean(z)) < 5 / np.sqrt(z.size) + nonlinear
    assert abs(np.std(z) - 1) < 5 / np.sqrt(2 * z.size) + nonlinear


@pytest.mark.parametrize(("shift", "std"), [(0.0, 1.0), (0.4, 0.8)])
def test_errors_of_weighted_moments_are_honest(shift, std):
    """Draws of N(0, 1) weighted to N(shift, std^2), in two coordinates of other places and scales."""
    rng, found = np.random.default_rng(4), []
    for _ in range(200):
        e = rng.standard_normal((400, 2))
        log_weights = -0.5 * ((e[:, 0] - shift) / std) ** 2 + 0.5 * e[:, 0] ** 2
        found.append(
            by_weights(np.array([5.0, -300.0]) + np.array([0.1, 40.0]) * e, smooth(log_weights))
        )
    shifts = np.array([one.shift for one in found])
    ratios = np.array([one.log_ratio for one in found])
    truth = np.array([shift / std, 0.0]), np.array([-np.log(std), 0.0])
    if not shift:
        # All weights are the same: nothing is left but rounding.
        assert np.max(np.abs(shifts)) < 1e-12
        assert np.max(np.abs(ratios)) < 1e-12
        return
    for k in range(2):
        means = scores(shifts[:, k], [one.shift_error[k] for one in found], truth[0][k])
        scales = scores(ratios[:, k], [one.log_ratio_error[k] for one in found], truth[1][k])
        assert_honest(means, nonlinear=0.15)
        assert_honest(scales, nonlinear=0.15)


@pytest.mark.parametrize(("memory", "count"), [(0.0, 8), (0.6, 60), (0.9, 60)])
def test_chains_are_followed_to_where_they_would_end(memory, count):
    """Autoregressive chains from a q that is off and too wide, whose limit N(0, 1) they do not reach."""
    rng, found = np.random.default_rng(5), []
    # A t with count - 2 degrees of freedom is wider than a normal.
    wider = np.sqrt((count - 2) / (count - 4))
    place, scale = np.array([5.0, -300.0]), np.array([0.1, 40.0])
    # Draws of q at its quantiles, so that the chains are all that is random.
    q = np.array([statistics.NormalDist(0.5, 1.3).inv_cdf(p) for p in (np.arange(2000) + 0.5) / 2000])
    for _ in range(150):
        z = [0.5 + 1.3 * rng.standard_normal((count, 2))]
        for _ in range(9):
            z.append(memory * z[-1] + np.sqrt(1 - memory**2) * rng.standard_normal((count, 2)))
        states = place + scale * np.array(z)
        made = Chains(states[0], states[1:], np.zeros((9, count)), 0.9)
        found.append(by_chains(place + scale * q[:, None], made, SETTINGS))
    for k in range(2):
        shifts = scores([one.shift[k] for one in found], [one.shift_error[k] for one in found], -0.5)
        assert_honest(shifts / wider, nonlinear=0.1 if count < 10 else 0.2)
        truth = np.log(1.3)
        known = [one for one in found if np.isfinite(one.log_ratio_error[k])]
        assert len(known) > 100
        ratios = scores([o.log_ratio[k] for o in known], [o.log_ratio_error[k] for o in known], truth)
        assert abs(np.median(ratios)) < 0.6


def test_shapes_do_not_depend_on_signs_places_and_scales():
    """A funnel with a skewed driver, a banana, and a skewed coordinate that another one only follows."""
    rng = np.random.default_rng(6)
    skewed = rng.exponential(size=4000)
    e = rng.standard_normal((4000, 2))
    funnel = np.stack([skewed, np.exp(-skewed) * e[:, 0], e[:, 1]], axis=1)
    banana = np.stack([e[:, 0], e[:, 0] ** 2 + e[:, 0] + 0.3 * e[:, 1], skewed], axis=1)
    metric = Metric(np.zeros(3), np.ones(3))
    for states, shapes in (
        (funnel, ((0, [1]), None, None)),
        (banana, (None, (1, 0), None)),
    ):
        for signs in ([1, 1, 1], [-1, 1, -1], [1, -1, 1]):
            moved = np.array([3.0, -100.0, 0.0]) + np.array([0.01, 7.0, 1.0]) * signs * states
            found = shapes_of(moved, metric)
            assert found[:3] == shapes
            assert found.neck == pytest.approx(shapes_of(states, metric).neck, abs=1e-6)
        turned = shapes_of(states[:, ::-1], metric)
        assert turned[:3] == Shapes(*shapes).at(np.array([2, 1, 0]))[:3]
    # What follows a skewed coordinate in a straight line is not bent.
    followed = np.stack([skewed, skewed + 0.5 * e[:, 0], e[:, 1]], axis=1)
    assert shapes_of(followed, metric).banana is None


@pytest.mark.parametrize("dim", [1, 5, 300])
def test_the_furthest_coordinates_come_first(dim):
    moved = np.random.default_rng(7).exponential(size=dim)
    found = furthest(moved)
    assert found == np.argsort(-moved)[: len(found)].tolist()
    assert len(found) >= min(dim, 5)
    zero, one = np.zeros(dim), np.ones(dim)
    away = displaced(100.0 * (np.arange(dim) == dim - 1), one, zero, one, 10.0)
    assert away == [dim - 1]
    assert displaced(zero, one, zero, one, 10.0) == []
    assert displaced(zero, one / 20, zero, one, 10.0)
