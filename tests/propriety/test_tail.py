"""Tails from values alone: what has mass, and what only looks like it because numbers end."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from looking import probe_of

import quietgrad as qg
from quietgrad.diagnostics.propriety import DEFAULT, Propriety, slow_tails
from quietgrad.diagnostics.propriety.rays import Profile, suspicious, tail_of

PRECISIONS = [np.float64, np.float32]
both = pytest.mark.parametrize("dtype", PRECISIONS)


def profile(fn, dtype=np.float64, *, sds=1.0, resolved=None):
    """A log density of the distance, in numbers of this precision."""
    t = DEFAULT.second_look(dtype)
    with np.errstate(all="ignore"):
        values = np.asarray(fn(t.astype(dtype)), dtype).astype(float)
        here = float(np.asarray(fn(np.zeros(1, dtype)), dtype)[0])
        first = np.asarray(fn(np.asarray(DEFAULT.first_look(dtype), dtype)), dtype).astype(float)
    if resolved is not None:
        resolved = np.asarray(resolved(t))
    made = Profile(t, values, here, sds, 1.0, float(np.finfo(dtype).eps), resolved)
    near = made._replace(distances=np.asarray(DEFAULT.first_look(dtype)), values=first, resolved=None)
    return made, near


def softplus(t):
    return np.logaddexp(t, 0).astype(t.dtype)


def clipped(rate, dtype):
    """rate times the log of exp(-t), which ends at the smallest normal number."""
    return lambda t: rate * np.log(np.maximum(np.exp(-t), np.finfo(dtype).tiny))


IMPROPER = {
    "flat": lambda t: 0 * t,
    "flat, ten nats down": lambda t: -10 * t**2 / (1 + t**2),
    "towards a limit, as a log scale": lambda t: -5 + 5 * np.exp(-t),
    "towards a limit, slowly": lambda t: -3 * t / (1 + t),
    "t to the minus 0.8": lambda t: -0.8 * np.log1p(t),
    "waves": lambda t: 3 * np.cos(t),
    "rising slowly": lambda t: np.log1p(t),
    "rising": lambda t: t,
    "rising like a square": lambda t: t**2 - 3 * t,
    "rising like an exponential function": lambda t: np.exp(t),
    "falling first": lambda t: np.exp(t) - 50 * t,
}
PROPER = {
    "a normal": lambda t: -0.5 * t**2,
    "an exponential": lambda t: -t,
    "a slow exponential": lambda t: -1e-3 * t,
    "a wide normal": lambda t: -0.5 * (t / 1e4) ** 2,
    "a logistic": lambda t: t - 2 * softplus(t),
    "Cauchy": lambda t: -np.log1p(t**2),
    "log Cauchy": lambda t: -np.log1p(t) - 2 * np.log(1 + np.log1p(t)),
    "a scale": lambda t: t - np.exp(t),
    "a wall": lambda t: np.where(t < 1e3, 0, -np.inf),
    "a slope up to a wall": lambda t: np.where(t < 1e3, t, -np.inf),
    "undefined from somewhere on": lambda t: np.where(t < 1e3, 0, np.nan),
    "overflow after a fall": lambda t: np.where(t < 20, -t, np.inf),
    "flat because of a floor far down": lambda t: np.maximum(-0.5 * t**2, -1e4),
    "a smooth floor far down": lambda t: np.logaddexp(-0.5 * t**2, -350),
    "a limit far down": lambda t: -350 * t / (1 + t),
    "a second mode": lambda t: np.logaddexp(-0.5 * t**2, 100 - 0.5 * (t - 50) ** 2),
}


@both
@pytest.mark.parametrize("name", IMPROPER)
def test_infinite_mass_is_found(name, dtype):
    whole, near = profile(IMPROPER[name], dtype)
    assert suspicious(near, DEFAULT.improper_slope)
    tail = tail_of(whole)
    assert tail is not None
    assert tail.improper
    assert tail.certain == (name != "t to the minus 0.8")


@both
@pytest.mark.parametrize("name", PROPER)
def test_finite_mass_is_not_accused(name, dtype):
    tail = tail_of(profile(PROPER[name], dtype)[0])
    assert tail is None or not tail.improper


@both
@pytest.mark.parametrize("rate", [0.05, 0.1, 1.0, 17.0])
def test_a_transform_that_is_clipped_is_no_tail(rate, dtype):
    """Four nats down or a thousand, whether a model tells it or not."""
    assert tail_of(profile(clipped(rate, dtype), dtype)[0]) is None
    ends = 0.9 * -math.log(np.finfo(dtype).tiny)
    told = profile(clipped(rate, dtype), dtype, resolved=lambda t: t < ends)[0]
    assert tail_of(told) is None


@both
def test_a_probability_that_is_clipped_next_to_one_is_no_tail(dtype):
    """Depth is log eps: 16 nats in single precision."""
    eps = np.finfo(dtype).eps
    for scale in (0.1, 1.0, 30.0):
        whole, _ = profile(lambda t, s=scale: np.log(np.maximum(np.exp(-s * t), eps)), dtype)
        assert tail_of(whole) is None


@both
def test_a_floor_that_numbers_do_not_explain_is_a_tail(dtype):
    """Five nats down at a distance of three: the user's own."""
    tail = tail_of(profile(lambda t: np.maximum(-0.5 * t**2, -5), dtype)[0])
    assert tail is not None
    assert tail.improper


@both
def test_a_limit_on_the_scale_of_a_model_is_found_before_its_map_ends(dtype):
    """exp(-t) as a scale with a prior of 1 / scale: flat to where it underflows, and infinite there."""
    ends = -math.log(np.finfo(dtype).tiny)

    def density(t, after):
        return np.where(t < ends, -5 + 5 * np.exp(-t), after)

    for after in (np.inf, -np.inf, np.nan, 1e9):
        whole, near = profile(lambda t, a=after: density(t, a), dtype, resolved=lambda t: t < ends)
        assert suspicious(near, DEFAULT.improper_slope)
        tail = tail_of(whole)
        assert tail is not None
        assert tail.improper
    # A gamma of shape 0.001 has finite mass, and falls by a tenth of a nat on the way.
    gamma, _ = profile(
        lambda t: np.where(t < ends, -1e-3 * t, np.inf), dtype, resolved=lambda t: t < ends
    )
    assert tail_of(gamma) is None


@pytest.mark.parametrize("power", [1.5, 2.0, 2.9])
def test_tails_without_a_variance_have_their_power(power):
    tail = tail_of(profile(lambda t: -0.5 * power * np.log1p(t**2))[0])
    assert tail is not None
    assert not tail.improper
    assert tail.slope == pytest.approx(-power, abs=1e-3)


@both
def test_rounding_far_out_is_neither_a_fall_nor_its_end(dtype):
    """Sums of large coordinates: noise of a tenth of a nat, and then none."""

    def log_density(t):
        place = np.minimum(20 * np.log1p(t), 499).astype(int)
        return -50 + np.where((t > 1e3) & (t < 1e5), noise[place], 0.0)

    for seed in range(20):
        noise = np.random.default_rng(seed).normal(0, 0.1, 500)
        tail = tail_of(profile(log_density, dtype)[0])
        assert tail is not None
        assert tail.improper


@both
def test_a_jump_before_numbers_end_is_no_growth(dtype):
    """What falls up to its last numbers, and is huge there, is what overflow leaves of a difference."""
    t = DEFAULT.second_look(dtype)
    # Within the last of the three stretches of three neighbours, over which growth is looked at.
    after, end = t[30], t[32]
    huge = 0.1 * np.finfo(dtype).max

    def log_density(t):
        return np.where(t < after, -t, np.where(t < end, huge, np.inf))

    assert tail_of(profile(log_density, dtype)[0]) is None
    # The same height is growth where what comes before rises to it.
    rises = profile(lambda t: np.where(t < end, huge * (t / end) ** 3, np.inf), dtype)[0]
    assert tail_of(rises) is not None


@both
@pytest.mark.parametrize("closest", [0.1, 4.0])
def test_no_two_distances_of_a_second_look_are_further_apart_than_the_ratio(closest, dtype):
    """What a tail does between two of them nobody sees. They are no more than that takes."""
    settings = Propriety(closest=closest)
    t = settings.second_look(dtype)
    np.testing.assert_allclose(t[[0, -1]], [closest, settings.farthest(dtype)], rtol=1e-12)
    assert np.max(t[1:] / t[:-1]) <= settings.ratio * (1 + 1e-12)
    assert (t[-1] / t[0]) ** (1 / (len(t) - 2)) > settings.ratio


@both
@pytest.mark.parametrize(("count", "told"), [(6, False), (7, True), (8, True)])
def test_growth_is_told_from_two_neighbouring_stretches_of_three_distances(count, told, dtype):
    """A spike that ends nearer than that is not followed; one that just shows both of them is."""
    end, huge = DEFAULT.second_look(dtype)[count], 0.1 * np.finfo(dtype).max
    rises = profile(lambda t: np.where(t < 0.99 * end, huge * (t / end) ** 4, np.inf), dtype)[0]
    tail = tail_of(rises)
    assert (tail is not None) == told
    assert tail is None or tail.improper


@both
@pytest.mark.parametrize("fewer", [0, 1])
def test_a_stretch_is_flat_from_as_many_distances_on_as_are_asked_for(fewer, dtype):
    """Where the model's map ends right behind them."""
    end = DEFAULT.second_look(dtype)[DEFAULT.flat_points - fewer]
    flat = profile(lambda t: 0 * t, dtype, resolved=lambda t: t < 0.99 * end)[0]
    tail = tail_of(flat)
    assert (tail is None) == bool(fewer)
    assert tail is None or tail.improper


def test_values_whose_digits_have_gone_say_nothing():
    """1e17 + anything small is 1e17."""
    assert tail_of(profile(lambda t: 0 * t - 1e17)[0]) is None


def test_the_numbers_are_the_settings():
    strict = Propriety(slack=-30.0)
    whole, _ = profile(IMPROPER["flat, ten nats down"])
    assert tail_of(whole, strict) is None
    assert tail_of(whole) is not None


def test_a_rise_that_is_rounding_is_no_tail():
    """e^t (1 - m - n) with m + n = 1 but for rounding, as log Gamma leaves it of a Beta density."""

    def log_density(z):
        of_one = jax.nn.sigmoid(z[:8]) + jax.nn.sigmoid(-z[:8]) - 1
        return -0.5 * jnp.sum(z**2) - jnp.exp(z[8]) * jnp.sum(of_one)

    target, axis = qg.Target.from_logdensity(log_density, dim=9), np.eye(9)[8:]
    careless = eqx.tree_at(lambda settings: settings.blurred, DEFAULT, math.inf)
    rng, accused = np.random.default_rng(0), 0
    probe = probe_of(target, np.float32)
    for _ in range(20):
        center = np.append(rng.normal(size=8), 0.0)
        assert slow_tails(probe, center, np.ones(9), axis) == []
        accused += len(slow_tails(probe, center, np.ones(9), axis, careless))
    # Where the sums are below one, on the ray and on the parallel one.
    assert accused > 0


def test_a_rise_is_found_where_another_coordinate_slopes_between_neighbouring_numbers():
    """At 1e4 a number and the next are far enough apart for a slope of 1e6 to show. It is smooth."""

    def log_density(z):
        return 1e6 * (z[0] - 1e4) + z[1] ** 6 * jnp.cosh(z[1])

    probe = probe_of(qg.Target.from_logdensity(log_density, dim=2), np.float64)
    found = slow_tails(probe, np.array([1e4, 0.0]), np.array([1e-6, 1.0]), np.eye(2)[1:])
    assert [tail.slope for _, tail in found] == [math.inf, math.inf]


def flat_beside_a_slope(steep):
    """Flat along the second coordinate, a normal where the first is off by more than a hundredth; and
    `steep` for each unit of the first one beyond zero."""

    def log_density(z):
        beyond = jnp.sum(jnp.maximum(steep * z[0], 0.0))
        return -beyond - jnp.where(jnp.max(jnp.sign(steep) * z[0]) > 0.01, 0.5 * z[1] ** 2, 0.0)

    return qg.Target.from_logdensity(log_density, dim=2)


@pytest.mark.parametrize("steep", [[1e3], [-1e3], [1e15, -1e15]], ids=["above", "below", "around"])
def test_a_parallel_ray_begins_no_lower_than_the_posterior_is(steep):
    """Whichever side the density falls off on, and however steeply: a ray that began far down would see
    another part of it, here one with an end."""
    probe = probe_of(flat_beside_a_slope(jnp.array(steep)), np.float64)
    found = slow_tails(probe, np.zeros(2), np.ones(2), np.eye(2)[1:])
    assert len(found) == 2
    assert all(tail.improper for _, tail in found)


@pytest.mark.parametrize("sign", [1, -1])
def test_variables_are_resolved_as_far_as_they_change_on_either_side(sign):
    """A normal one changes to the end, the exponential of a scale until it is zero or infinite."""
    t = np.geomspace(0.5, 1e6, 40)

    def resolved(prior):
        target = qg.Target.from_numpyro(lambda: numpyro.sample("x", prior))
        return probe_of(target, np.float64).resolved(sign * t[:, None])

    assert np.all(resolved(dist.Normal(0.0, 1.0)))
    with np.errstate(over="ignore", under="ignore"):
        before_the_last = np.exp(sign * t[:-1]) != np.exp(sign * t[1:])
    np.testing.assert_array_equal(resolved(dist.HalfNormal(1.0))[:-1], before_the_last)
