"""What every registered sampler promises: each draw has the base distribution, so means are unbiased."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import assert_mean, rule, standard_error
from scipy.special import expit
from subjects import key_of

from quietgrad.estimators.samplers import REGISTRY, Antithetic, Iid
from quietgrad.families import bases
from quietgrad.families.bases import Normal

REPLICATIONS = 4000
DRAWS, DIM = 8, 3


@pytest.fixture(params=REGISTRY, scope="module")
def sampler(request):
    return REGISTRY[request.param]()


@pytest.fixture(params=bases.REGISTRY, scope="module")
def base(request):
    return bases.REGISTRY[request.param]()


@functools.cache
def draws_of(sampler, base):
    """`REPLICATIONS` independent sets of draws."""
    assert sampler.refuses(DRAWS, base, DIM) is None
    state = sampler.init(DRAWS, DIM)

    def draw(key):
        return sampler.draw(state, base, (DRAWS, DIM), jnp.float64, key=key)

    return np.asarray(jax.jit(jax.vmap(draw))(jr.split(key_of("samplers"), REPLICATIONS)))


def expectation(base, function):
    e, w = rule(base, 400)
    return w @ function(e)


MARGINALS = {
    "mean": lambda e: e,
    "square": lambda e: e**2,
    "tanh squared": lambda e: np.tanh(e) ** 2,
    "skewed": lambda e: expit(2 * e - 1),
}


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", MARGINALS)
def test_every_draw_has_the_base_distribution(sampler, base, name):
    """Each place in the set of draws by itself, over the replications."""
    e = draws_of(sampler, base)
    assert e.shape == (REPLICATIONS, DRAWS, DIM)
    assert_mean(MARGINALS[name](e), expectation(base, MARGINALS[name]))


def test_coordinates_of_a_draw_are_uncorrelated(sampler, base):
    e = np.tanh(draws_of(sampler, base))
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        assert_mean(e[..., i] * e[..., j], 0.0)


def test_mean_of_a_nonlinear_function_is_unbiased(sampler, base):
    """Of the set's mean, which is what a gradient estimate is; the function ties the coordinates."""
    e = draws_of(sampler, base)
    lift, spread = MARGINALS["skewed"], MARGINALS["tanh squared"]
    means = np.mean(lift(e[..., 0]) * spread(e[..., 1]) + np.tanh(e[..., 2]), axis=1)
    assert_mean(means, expectation(base, lift) * expectation(base, spread))


INTEGRANDS = {
    "odd": lambda e: np.tanh(e[..., 0]),
    "even": lambda e: np.tanh(e[..., 0]) ** 2,
    "sum": lambda e: np.tanh(e[..., 0]) + np.tanh(e[..., 1]) ** 2,
    "product": lambda e: np.prod(np.tanh(e), axis=-1),
    "even product": lambda e: np.tanh(e[..., 0]) * np.tanh(e[..., 1]),
    "indicator": lambda e: (np.sum(e, axis=-1) > 1) * 1.0,
}


@pytest.mark.parametrize("name", INTEGRANDS)
def test_variance_stays_within_what_is_promised(sampler, base, name):
    bound = sampler.variance_bound(DRAWS)
    if bound == np.inf:
        return
    own, plain = (np.mean(INTEGRANDS[name](draws_of(s, base)), axis=1) for s in (sampler, Iid()))
    own, plain = ((means - np.mean(means)) ** 2 for means in (own, plain))
    above = np.mean(own) - bound * np.mean(plain)
    # The samplers' draws are not paired, so their errors add up.
    assert above <= 5 * np.hypot(standard_error(own), bound * standard_error(plain))


def test_antithetic_pairs_reach_their_bound(base):
    """Twice the variance, for what is even in the draw: less would be a wrong promise."""
    own, plain = (np.mean(INTEGRANDS["even"](draws_of(s, base)), axis=1) for s in (Antithetic(), Iid()))
    own, plain = ((means - np.mean(means)) ** 2 for means in (own, plain))
    error = np.hypot(standard_error(own), 2 * standard_error(plain))
    assert abs(np.mean(own) - 2 * np.mean(plain)) <= 5 * error
    assert np.mean(own) > np.mean(plain) + 5 * error


def test_sets_differ_between_keys_and_repeat_with_them(sampler):
    state = sampler.init(DRAWS, DIM)
    first, again, other = (
        sampler.draw(state, Normal(), (DRAWS, DIM), jnp.float32, key=jr.key(s)) for s in (0, 0, 1)
    )
    assert first.dtype == jnp.float32
    np.testing.assert_array_equal(first, again)
    assert not np.any(first == other)


def test_antithetic_pairs_cancel(base):
    e = draws_of(Antithetic(), base)
    np.testing.assert_array_equal(e[:, : DRAWS // 2], -e[:, DRAWS // 2 :])


def test_antithetic_pairs_refuse_an_odd_number(base):
    reason = Antithetic().refuses(5, base, DIM)
    assert reason is not None
    assert "even" in reason
    assert "5" in reason
