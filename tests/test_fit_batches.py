"""Minibatches, seen from outside: a target whose gradient counts the rows of every step.

Row i adds z_i to the log density, so a gradient step of rate one raises the location's coordinate i by
N / B if row i is in the batch. Fractions would show if draws had batches of their own.
"""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import quietgrad as qg
from quietgrad.session import Evaluation, Problem, Recorder

ROWS = 10


def counts_of_steps(batch_size, steps, key):
    """How often each row was used in each step, (steps, rows)."""
    target = qg.Target(
        # Proper far out, where the recorder looks, and nothing to rounding where the steps are.
        log_prior=lambda z: -1e-22 * jnp.sum(z**4),
        log_likelihood=lambda z, row: z[row],
        data=np.arange(ROWS),
    )
    q = qg.MeanField(jnp.zeros(ROWS), jnp.full(ROWS, -100.0))

    def callback(moment):
        return {f"row {i}": float(x) for i, x in enumerate(moment.q.loc)}

    method = qg.Sgd(qg.estimator("nocv", draws=4), optax.sgd(1.0), steps=steps, evaluate_every=1)
    problem = Problem(target, q, batch_size)
    recorder = Recorder(problem, evaluation=Evaluation(4, 4, share=None), callback=callback, key=key)
    method.steps_from(recorder, recorder.candidate(q, 0))
    columns = recorder.history.arrays()
    raised = np.stack([np.diff(np.append(0.0, columns[f"row {i}"])) for i in range(ROWS)], axis=1)
    counts = raised * (batch_size or ROWS) / ROWS
    # Sums of a few numbers of size ten.
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-12)
    return np.round(counts).astype(int)


@pytest.mark.turns(2, first=1)
@pytest.mark.parametrize("batch_size", [1, 3, 5, 10])
def test_an_epoch_uses_rows_at_most_once(batch_size, key):
    steps = ROWS // batch_size
    counts = counts_of_steps(batch_size, 3 * steps, key)
    assert np.all(np.sum(counts, axis=1) == batch_size)
    for epoch in counts.reshape(3, steps, ROWS):
        used = np.sum(epoch, axis=0)
        assert np.max(used) == 1
        assert np.sum(used) == steps * batch_size


def test_epochs_have_different_orders(key):
    counts = counts_of_steps(2, 15, key)
    epochs = {epoch.tobytes() for epoch in counts.reshape(3, 5, ROWS)}
    assert len(epochs) == 3


def test_full_batches_use_every_row_once_a_step(key):
    np.testing.assert_array_equal(counts_of_steps(None, 2, key), 1)


def test_every_row_has_its_chance_when_batches_leave_some_out(key):
    """Three batches of three leave one of ten rows out, each epoch another one at random."""
    counts = counts_of_steps(3, 60, key)
    left_out = np.sum(counts.reshape(20, 3, ROWS), axis=1) == 0
    assert np.all(np.sum(left_out, axis=1) == 1)
    assert len(set(np.argmax(left_out, axis=1))) > 5
