"""The parts of a diagnosis by themselves: metric, chains, climbs, tails and shapes."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import posteriors
import pytest
from posteriors import mean_field

from quietgrad import FullRank, Target
from quietgrad.diagnostics.chains import Sampler
from quietgrad.diagnostics.charts import PlainChart
from quietgrad.diagnostics.climbs import climb, far_starts
from quietgrad.diagnostics.comparison import Comparison, by_chains
from quietgrad.diagnostics.draws import Draws, draw
from quietgrad.diagnostics.evidence import axes_of
from quietgrad.diagnostics.expected_gain import (
    conclusive_gain,
    expected_gain,
    gain_at,
    paired_square,
)
from quietgrad.diagnostics.metric import Metric, metric_of
from quietgrad.diagnostics.propriety import LogDensityProbe, slow_tails
from quietgrad.diagnostics.settings import Diagnostics
from quietgrad.diagnostics.shapes import shapes_of
from quietgrad.diagnostics.tolerance import combine, contradicted, plain, unsure
from quietgrad.evaluation.points import Points

MEAN, COVARIANCE = np.asarray(posteriors.MEAN), posteriors.COVARIANCE


def unit(dim):
    return Metric(np.zeros(dim), np.eye(dim))


def points_of(log_density, dim):
    return Points(Target.from_logdensity(log_density, dim), float)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_gradients_at_draws_of_any_q_show_a_gaussian_s_covariance(rng):
    result = mean_field(posteriors.gaussian(), MEAN + 1, [0.3, 2.0, 0.7])
    points = Points(result.target, float)
    metric = metric_of(draw(result.q, points, rng, 500))
    np.testing.assert_allclose(metric.covariance, COVARIANCE, rtol=1e-6)
    u = rng.standard_normal((4, 3))
    np.testing.assert_allclose(metric.whiten(metric.center + metric.push(u)), u, atol=1e-10)


def test_with_few_draws_the_metric_is_a_diagonal(rng):
    result = mean_field(posteriors.gaussian(), MEAN, [1.0, 1.0, 1.0])
    drawn = draw(result.q, Points(result.target, float), rng, 512)
    few = drawn._replace(
        **{name: getattr(drawn, name)[:10] for name in ("e", "z", "log_q", "values", "slope")}
    )
    metric = metric_of(few)
    assert not metric.dense
    u = rng.standard_normal((4, 3))
    np.testing.assert_allclose(metric.whiten(metric.center + metric.push(u)), u)
    assert np.all(metric.std > 0)


@pytest.mark.parametrize("short", [0, 1])
def test_a_matrix_needs_so_many_draws_for_each_coordinate_and_no_more(short, rng):
    """Those without a density do not count."""
    settings = Diagnostics(left_out=0.0)
    count = 3 * settings.per_coordinate + 2
    z = rng.standard_normal((count, 3))
    values = -0.5 * np.sum(z**2, axis=1)
    values[: 2 + short] = -np.inf
    assert metric_of(Draws(z, z, values, values, -z, 1), settings).dense is (short == 0)


def test_a_density_that_is_flat_wherever_q_draws_has_no_end_and_is_told(rng):
    """As far out on a likelihood that has reached its bound."""

    def log_density(z):
        return 0.0 * jnp.sum(z)

    result = mean_field(Target.from_logdensity(log_density, 3), [1e7] * 3, [1e6] * 3)
    points = Points(result.target, float)
    metric = metric_of(draw(result.q, points, rng, 500))
    assert np.all(np.isfinite(metric.covariance))
    assert tails_of(log_density, metric)[0][1].improper


def test_chains_leave_a_posterior_as_it_is_and_find_it_from_elsewhere(rng):
    """Logs of gamma variables of shape 4: mean digamma(4), variance trigamma(4)."""
    mean, variance = 1.2561176684318, 0.2838229557371
    points = Points(posteriors.log_gamma(), float)
    metric = Metric(np.full(4, mean), np.full(4, 0.5))
    exact = np.log(rng.gamma(4.0, size=(400, 4)))
    for start in (exact, exact[:100] + 0.5):
        chains = Sampler(PlainChart(points), metric, start, rng).run(40 * len(start))
        # q is stood in for by draws with known moments: those of the start.
        found = by_chains(start, chains)
        shift = (mean - start.mean(axis=0)) / np.sqrt(variance)
        # The unit, an sd, is estimated as well.
        error = found.shift_error + np.abs(shift) * found.log_ratio_error
        assert np.all(np.abs(found.shift - shift) < 5 * error)
        ratio = 0.5 * np.log(start.var(axis=0) / variance)
        assert np.all(np.abs(found.log_ratio - ratio) < 5 * found.log_ratio_error)
        assert np.all(found.shift_error < 0.1)


def test_climbs_end_at_modes_though_some_start_where_there_is_no_density(rng):
    """Rosenbrock's valley has its top at (1, 1); beyond a wall the density is zero."""

    def log_density(z):
        valley = -((1 - z[0]) ** 2) - 10 * (z[1] - z[0] ** 2) ** 2
        return jnp.where(jnp.abs(z[0]) < 20, valley, -jnp.inf)

    starts = np.concatenate([rng.uniform(-2, 2, (15, 2)), [[50.0, 0.0]]])
    ends, heights, promises = climb(points_of(log_density, 2), unit(2), starts, 150)
    np.testing.assert_allclose(ends, 1.0, atol=1e-3)
    assert np.all(heights > -1e-6)
    # At rest, though the valley is narrow for the metric.
    assert np.all(promises < 1e-6)


@pytest.mark.parametrize("trials", [1, 2, 5])
def test_no_climb_ends_lower_than_it_began(trials):
    """Steps of length one from just before the middle of their way across a peak, and from all over it:
    some end lower, by next to nothing or by much, and none of these is taken."""
    # Beyond the middle by 1e-7 to 1e-2; a slope of five would forgive 5e-4 nats.
    start = np.concatenate([0.5 - np.geomspace(1e-7, 1e-2, 12), np.linspace(-3, 3, 13)])[:, None]
    ends, heights, _ = climb(points_of(lambda z: -5.0 * z[0] ** 2, 1), unit(1), start, trials)
    before = -5.0 * start[:, 0] ** 2
    np.testing.assert_allclose(heights, -5.0 * ends[:, 0] ** 2, rtol=1e-12)
    assert np.all(heights >= before)


def test_far_starts_are_far_and_include_the_mirror_image(rng):
    metric = Metric(np.array([3.0, -4.0]), np.array([0.1, 10.0]))
    starts = far_starts(metric, rng, 32)
    assert starts.shape == (32, 2)
    assert np.any(np.all(starts == [-3.0, 4.0], axis=1))
    assert np.max(np.abs(metric.whiten(starts))) > 30


def tails_of(log_density, metric, gradients=None):
    dim = metric.center.size
    target = Target.from_logdensity(log_density, dim=dim)
    points = points_of(log_density, dim)
    probe = LogDensityProbe(target, float, lambda z: points(z)[0], points)
    return slow_tails(probe, metric.center, metric.std, axes_of(metric, gradients))


@pytest.mark.parametrize(("power", "slow"), [(0.8, True), (2.0, True), (3.0, True), (5.0, False)])
def test_powers_of_tails_are_measured(power, slow):
    def log_density(z):
        return -0.5 * power * jnp.log1p(z[0] ** 2) - 0.5 * z[1] ** 2

    tails = tails_of(log_density, unit(2))
    assert bool(tails) == slow
    if slow:
        ray, tail = tails[0]
        assert ray.coordinates == [0]
        assert tail.slope == pytest.approx(-power, abs=1e-3)
        assert tail.improper == (power < 1)


def test_a_density_that_is_flat_because_numbers_end_is_no_tail():
    assert tails_of(lambda z: jnp.maximum(-0.5 * jnp.sum(z**2), -1e4), unit(2)) == []


def test_a_direction_without_end_is_seen_though_no_coordinate_is():
    metric = Metric(np.zeros(2), np.linalg.cholesky([[1.0, -0.999], [-0.999, 1.0]]))
    ray, tail = tails_of(lambda z: -0.5 * (z[0] + z[1]) ** 2, metric)[0]
    assert tail.improper
    assert sorted(ray.coordinates) == [0, 1]


def test_a_direction_in_which_all_gradients_vanish_is_followed_though_the_metric_has_it_roughly(rng):
    metric = Metric(np.zeros(3), np.linalg.cholesky([[1, -1.8, 0], [-1.8, 4, 0], [0, 0, 1.0]]))

    def log_density(z):
        return -0.5 * (z[0] + z[1]) ** 2 - 0.5 * z[2] ** 2

    gradients = points_of(log_density, 3)(rng.standard_normal((100, 3)))[1]
    assert tails_of(log_density, metric) == []
    ray, tail = tails_of(log_density, metric, gradients)[0]
    assert tail.improper
    assert sorted(ray.coordinates) == [0, 1]


def test_shapes_are_told_apart(rng):
    e = rng.standard_normal((3, 1000))
    plain = shapes_of(e.T, unit(3))
    assert plain[:3] == (None, None, None)
    assert plain.neck < 0.1
    funnel = shapes_of(np.stack([e[0], np.exp(e[0]) * e[1], np.exp(e[0]) * e[2]], axis=1), unit(3))
    assert funnel.funnel == (0, [1, 2])
    assert funnel.banana is None
    assert funnel.neck > 0.6
    banana = shapes_of(np.stack([e[0], e[0] ** 2 + 0.2 * e[1], e[2]], axis=1), unit(3))
    assert banana.banana == (1, 0)
    assert banana.funnel is None
    root = np.linalg.cholesky([[1, 0.99, 0], [0.99, 1, 0], [0, 0, 1]])
    straight = shapes_of(e.T @ root.T, Metric(np.zeros(3), root)).straight
    assert straight is not None
    assert straight[:2] == (0, 1)
    assert straight[2] == pytest.approx(0.99)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_funnel_of_skewed_coordinates_shows_in_distances_from_their_medians(sign, rng):
    """log |z_j| = v + log |x_j|, and the median of x_j is zero: v is a known part of it."""
    v, x = rng.standard_normal(4000), rng.exponential(size=(4000, 2)) - np.log(2)
    followed = 1 / np.sqrt(1 + np.var(np.log(np.abs(x)), axis=0))
    settings = Diagnostics(funnel=0.9 * float(np.min(followed)))
    states = np.column_stack([v, sign * np.exp(v)[:, None] * x])
    assert shapes_of(states, unit(3), settings).funnel == (0, [1, 2])


def test_the_gain_at_hand_is_that_of_a_newton_step(rng):
    """A mean that is off by m costs m' P m / 2 nats, which a Newton step gains."""
    move = np.array([0.3, 0.0, -0.2])
    result = posteriors.full_rank(posteriors.gaussian(), MEAN + move, COVARIANCE)
    points = Points(result.target, float)
    drawn = draw(result.q, points, rng, 1000)
    truth = 0.5 * move @ np.linalg.inv(COVARIANCE) @ move
    for found in (gain_at(result.q, drawn, metric_of(drawn)), expected_gain(points, result.q, rng)):
        assert abs(found.nats - truth) < 5 * found.error + 1e-3


def test_draws_of_every_kind_of_q_have_its_density(rng):
    result = posteriors.full_rank(posteriors.gaussian(), MEAN, COVARIANCE)
    drawn = draw(result.q, Points(result.target, float), rng, 300)
    assert len(drawn.z) % drawn.groups == 0
    np.testing.assert_allclose(drawn.log_q, result.q.log_prob(jnp.asarray(drawn.z)))
    np.testing.assert_allclose(
        drawn.values[:5], [result.target.log_density(jnp.asarray(z)) for z in drawn.z[:5]]
    )


@pytest.mark.parametrize(
    ("shift", "log_ratio", "error", "open_questions", "more"),
    [
        (0.0, 0.0, 0.02, 0, False),
        (0.21, -0.22, 0.02, 0, True),  # within one error of neither limit, within two of both
        (0.21, -0.22, 0.05, 2, True),
        (0.0, 0.0, float("nan"), 2, True),
    ],
)
def test_what_is_within_an_error_of_its_limit_is_open(shift, log_ratio, error, open_questions, more):
    """Means may be off by 0.25, log ratios of sds by log 1.3 = 0.262."""
    found = Comparison(*(np.array([x]) for x in (shift, error, log_ratio, error))).known()
    assert sum(int(np.count_nonzero(part)) for part in unsure(found)) == open_questions
    assert plain(found) is not more


def test_a_promise_in_doubt_is_asked_again_until_it_is_conclusive(rng):
    """At the optimum of a full-rank family nothing is left, and 465 scales are noisy."""
    dim = 30
    points = points_of(lambda z: -0.125 * jnp.sum(z**4), dim)
    # E(3/2 z^2) = 1 / sigma^2, and gradients of a quartic are not those of any Gaussian.
    q = FullRank.init(dim, key=jr.key(0)).for_quadratic(np.zeros(dim), np.sqrt(1.5) * np.eye(dim))
    few = expected_gain(points, q, rng)
    assert not few.non_negative.clearly_below(0.1)
    many = conclusive_gain(few, points, q, rng, worth=0.1)
    assert many.non_negative.clearly_below(0.1)
    assert many.error < few.error / 2


def test_next_to_a_spike_the_promise_is_infinite_without_a_warning():
    assert paired_square(np.full((4, 2), 1e184)).nats == np.inf


@pytest.mark.parametrize(
    ("said", "error", "goes_on"),
    [(0.65, 0.15, True), (0.65, 0.3, False), (0.8, 0.15, False), (1.5, 0.15, True)],
)
def test_weights_do_not_end_chains_that_say_otherwise(said, error, goes_on):
    """q's sd over the posterior's: 0.85 by weights, whose errors are too small where q is narrow."""

    def scale(ratio, error):
        ratio, error = np.array([0.0, np.log(ratio)]), np.array([0.01, error])
        return Comparison(np.zeros(2), np.full(2, 0.01), ratio, error)

    moved, weighted = scale(said, error), scale(0.85, 0.02)
    found = combine(moved, weighted)
    assert plain(found)
    assert contradicted(found, moved) is goes_on
    # Of chains that are sharp, what they say counts.
    sharp = scale(said, 0.02)
    assert not contradicted(combine(sharp, weighted), sharp)
