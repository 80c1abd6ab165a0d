"""What every registered sampler promises: each draw has the base distribution, so means are unbiased."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import assert_mean, rule
from scipy.special import expit
from subjects import key_of

from quietgrad import bases
from quietgrad.bases import Normal
from quietgrad.samplers import REGISTRY, Antithetic

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
