"""`fit_energy` as a call: chunks, limits, interruptions, what it hands back."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg

ROWS = np.random.default_rng(0).normal(size=(200, 2)) * [1.0, 2.0] + [0.5, -1.0]


def quadratic(params, x):
    return 0.5 * jnp.sum(jnp.exp(params["log_precision"]) * (x - params["mean"]) ** 2)


START = {"log_precision": jnp.zeros(2), "mean": jnp.zeros(2)}


@pytest.mark.slow
def test_the_first_chunk_is_one_step_and_chunks_grow_no_faster_than_eightfold():
    """So a limit of seconds, or Ctrl-C, waits for one step at first, however many were asked for."""
    result = qg.fit_energy((START, quadratic), ROWS, steps=2000, batch_size=20, key=jr.key(0))
    steps = result.history["step"]
    sizes = np.diff(np.concatenate([[0], steps]))
    assert steps[0] == 1
    assert np.all(sizes[1:] <= 8 * sizes[:-1])
    assert steps[-1] == 2000
    # The marks of the history are there, whatever the chunks.
    assert set(range(40, 2001, 40)) <= set(steps.tolist())


def test_ctrl_c_after_the_first_step_returns_what_there_is():
    def callback(moment):
        raise KeyboardInterrupt

    result = qg.fit_energy((START, quadratic), ROWS, steps=10_000_000, callback=callback, key=jr.key(0))
    assert result.status is qg.Status.INTERRUPTED
    assert result.steps == 1


def test_a_limit_of_seconds_ends_a_fit_with_very_many_steps():
    """Ten million steps in chunks of a fiftieth would take minutes."""
    result = qg.fit_energy((START, quadratic), ROWS, steps=10_000_000, seconds=1.0, key=jr.key(0))
    assert 1 <= result.steps < 10_000_000
    assert np.max(np.diff(result.history["step"], prepend=0)) < 200_000


def test_a_gaussian_is_found_and_its_log_z_is_right():
    result = qg.fit_energy((START, quadratic), ROWS, steps=600, rate=0.05, key=jr.key(1))
    fitted = result.energy
    error = ROWS.std(0) / np.sqrt(len(ROWS))
    np.testing.assert_allclose(fitted["mean"], ROWS.mean(0), atol=float(np.max(error)))
    np.testing.assert_allclose(jnp.exp(-0.5 * fitted["log_precision"]), ROWS.std(0), rtol=0.1)
    log_z = result.log_z(jr.key(2), temperatures=200, points=64)
    exact = np.log(2 * np.pi) - 0.5 * float(jnp.sum(fitted["log_precision"]))
    assert abs(log_z.value - exact) < 5 * log_z.error + 1e-3


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", ["stein", "pcd", "cd", "jarzynski", "score-matching"])
def test_every_method_raises_the_likelihood(name):
    def log_likelihood(params):
        log_z = np.log(2 * np.pi) - 0.5 * jnp.sum(params["log_precision"])
        return -float(np.mean([quadratic(params, x) for x in jnp.asarray(ROWS)]) + log_z)

    result = qg.fit_energy((START, quadratic), ROWS, method=name, steps=200, rate=0.05, key=jr.key(3))
    assert log_likelihood(result.energy) > log_likelihood(START) + 0.5
