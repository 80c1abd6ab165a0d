"""The triple for loops of one's own: pure functions that scan, vectorise and agree with a fit."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from oracles import assert_same
from subjects import PROGRAMS, target_2d

import quietgrad as qg

X = jnp.asarray(np.random.default_rng(0).normal(size=(12, 2)))
Y = X @ jnp.array([1.0, -1.0])
STEPS = 1000


def reach(rate, steps):
    """The way that Adam can go in the last 4 % of its steps, none longer than its rate.

    With sticking the landing noise dies out at the optimum, so this is all that can be left.
    """
    return float(jnp.sum(rate(jnp.arange(steps - steps // 25, steps))))


def regression():
    def log_likelihood(z, data):
        x, y = data
        return -0.5 * (y - x @ z["w"]) ** 2

    example = {"w": jnp.zeros(2)}
    return qg.Target(lambda z: -0.5 * jnp.sum(z["w"] ** 2), log_likelihood, (X, Y), example=example)


def test_a_scan_of_steps_is_a_fit(key):
    """The posterior is a correlated Gaussian, which full rank holds: the ELBO is exact at the end."""
    rate = optax.cosine_decay_schedule(0.1, STEPS)
    loop = qg.loop(regression(), "full-rank", optimizer=optax.adam(rate))
    state, info = jax.jit(lambda s, k: jax.lax.scan(loop.step, s, k))(
        loop.init(key), jr.split(key, STEPS)
    )
    precision = X.T @ X + jnp.eye(2)
    mean = jnp.linalg.solve(precision, X.T @ Y)
    q = loop.family(state)
    covariance = q.covariance_matmul(jnp.eye(2))
    np.testing.assert_allclose(q.mean(), mean, atol=reach(rate, STEPS))
    # Each entry is a sum over two coordinates of products of two factors, all within reach.
    np.testing.assert_allclose(precision @ covariance, np.eye(2), atol=4 * reach(rate, STEPS))
    assert info.elbo.shape == info.gradient_norm.shape == (STEPS,)
    # The gradient is proportional to the distance that is left.
    distance = jnp.linalg.norm(loop.family(loop.init(key)).mean() - mean)
    assert info.gradient_norm[-1] < reach(rate, STEPS) / distance * info.gradient_norm[0]
    draws = loop.sample(state, key, 5)
    assert draws["w"].shape == (5, 2)
    assert loop.hyperparameters(state) is None


def test_steps_are_pure_and_compiled_once(key):
    loop = qg.loop(target_2d("curved"), "mean-field", "quadcv")
    state, keys = jax.jit(loop.init)(key), jr.split(key, 4)
    each = list(keys)  # taking one out of an array is a program, too
    before, step = PROGRAMS[0], jax.jit(loop.step)
    one_by_one, info = state, None
    for k in each:
        one_by_one, info = step(one_by_one, k)
    first = PROGRAMS[0] - before
    assert first > 0
    for _ in range(2):
        step(state, each[0])
    assert PROGRAMS[0] - before == first
    scanned, infos = jax.lax.scan(step, state, keys)
    assert info is not None
    last = jax.tree.map(lambda x: x[-1], infos)
    # Four steps, each a few hundred operations deep at most.
    found, expected = (
        eqx.filter(x, eqx.is_inexact_array) for x in ((scanned, last), (one_by_one, info))
    )
    assert_same(found, expected, operations=4 * 300)
    chains = jax.eval_shape(jax.vmap(loop.step, in_axes=(None, 0)), state, keys)[0]
    assert chains.params.loc.shape == (4, 2)


@pytest.mark.slow
def test_minibatches_see_every_row_once_an_epoch(key):
    """Rows are told apart by powers of two, so that the sum of a batch names its rows."""
    target = qg.Target(
        lambda z: -0.5 * z @ z, lambda z, row: 0 * z[0] + 2.0**row, jnp.arange(12.0), dim=1
    )
    start = qg.MeanField(jnp.zeros(1), jnp.zeros(1))
    loop = qg.loop(target, start, batch_size=4)
    _, info = jax.lax.scan(loop.step, loop.init(key), jr.split(key, 6))
    # N / B times the sum, plus E log p - log q, which is exact with q = p but for log(2 pi) / 2.
    sums = np.round((np.asarray(info.elbo) - 0.5 * np.log(2 * np.pi)) / 3).astype(int)
    seen = [[i for i in range(12) if total >> i & 1] for total in sums]
    assert all(len(rows) == 4 for rows in seen)
    epochs = [sorted(sum(seen[:3], [])), sorted(sum(seen[3:], []))]
    assert epochs == [list(range(12))] * 2
    _, chosen = loop.step(loop.init(key), key, jnp.array([0, 5]))
    assert np.round((chosen.elbo - 0.5 * np.log(2 * np.pi)) / 6) == 1 + 32


def test_hyperparameters_move_with_the_rest(key):
    target = qg.Target(
        lambda z, h: -0.5 * jnp.sum((z - h["loc"]) ** 2), lambda z, x: -0.5 * (x - z[0]) ** 2, Y, dim=1
    )
    rate = optax.cosine_decay_schedule(0.1, STEPS)
    loop = qg.loop(
        target, "mean-field", optimizer=optax.adam(rate), hyperparameters={"loc": jnp.zeros(1)}
    )
    state, _ = jax.lax.scan(loop.step, loop.init(key), jr.split(key, STEPS))
    # Without a scale to fit, the best centre of the prior is the mean of the data.
    centre = loop.hyperparameters(state)["loc"]
    np.testing.assert_allclose(centre, np.mean(Y), atol=reach(rate, STEPS))
    assert loop.sample(state, key, 3).shape == (3, 1)


def test_misuse_is_found_before_the_first_step():
    target = regression()
    with pytest.raises(ValueError, match="unknown family 'nope'"):
        qg.loop(target, "nope")
    with pytest.raises(ValueError, match="name one for a loop"):
        qg.loop(target, "auto")
    with pytest.raises(ValueError, match="no closed-form"):
        qg.loop(target, "real-nvp", "taylor")
    with pytest.raises(ValueError, match="only 12 rows"):
        qg.loop(target, batch_size=13)
