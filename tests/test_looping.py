"""The triple for loops of one's own: pure functions that scan, vectorise and agree with a fit."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from subjects import TRACES, target_2d

import quietgrad as qg

X = jnp.asarray(np.random.default_rng(0).normal(size=(12, 2)))
Y = X @ jnp.array([1.0, -1.0])


def regression():
    def log_likelihood(z, data):
        x, y = data
        return -0.5 * (y - x @ z["w"]) ** 2

    example = {"w": jnp.zeros(2)}
    return qg.Target(lambda z: -0.5 * jnp.sum(z["w"] ** 2), log_likelihood, (X, Y), example=example)


def test_a_scan_of_steps_is_a_fit(key):
    """The posterior is a correlated Gaussian, which full rank holds: the ELBO is exact at the end."""
    rate = optax.cosine_decay_schedule(0.1, 1000)
    loop = qg.loop(regression(), "full-rank", optimizer=optax.adam(rate))
    state, info = jax.jit(lambda s, k: jax.lax.scan(loop.step, s, k))(
        loop.init(key), jr.split(key, 1000)
    )
    precision = X.T @ X + jnp.eye(2)
    mean = jnp.linalg.solve(precision, X.T @ Y)
    q = loop.family(state)
    covariance = q.covariance_matmul(jnp.eye(2))
    # Noise dies out at the optimum with sticking the landing; what is left is the last steps' rate.
    np.testing.assert_allclose(q.mean(), mean, atol=1e-2)
    np.testing.assert_allclose(precision @ covariance, np.eye(2), atol=5e-2)
    assert info.elbo.shape == info.gradient_norm.shape == (1000,)
    assert info.gradient_norm[-1] < 1e-2 * info.gradient_norm[0]
    draws = loop.sample(state, key, 5)
    assert draws["w"].shape == (5, 2)
    assert loop.hyperparameters(state) is None


def test_steps_are_pure_and_traced_once(key):
    loop = qg.loop(target_2d("curved"), "mean-field", "quadcv")
    state, keys = jax.jit(loop.init)(key), jr.split(key, 4)
    before, step = TRACES[0], jax.jit(loop.step)
    one_by_one, info = state, None
    for k in keys:
        one_by_one, info = step(one_by_one, k)
    first = TRACES[0] - before
    for _ in range(2):
        step(state, keys[0])
    assert TRACES[0] - before == first
    scanned, infos = jax.lax.scan(loop.step, state, keys)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), scanned, one_by_one)
    assert info is not None
    np.testing.assert_allclose(infos.elbo[-1], info.elbo, rtol=1e-9)
    chains = jax.vmap(loop.step, in_axes=(None, 0))(state, keys)[0]
    assert chains.params.loc.shape == (4, 2)


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
    loop = qg.loop(
        target, "mean-field", optimizer=optax.adam(0.1), hyperparameters={"loc": jnp.zeros(1)}
    )
    state, _ = jax.lax.scan(loop.step, loop.init(key), jr.split(key, 600))
    # Without a scale to fit, the best centre of the prior is the mean of the data.
    np.testing.assert_allclose(loop.hyperparameters(state)["loc"], np.mean(Y), atol=0.05)
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
