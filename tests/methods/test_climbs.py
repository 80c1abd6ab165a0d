"""Climbs at fixed draws where coordinates are many: where they start, and when they end a fit."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.methods.auto import auto, starts
from quietgrad.methods.auto.curvature import CURVED_MEAN_FIELD

DIM = CURVED_MEAN_FIELD + 6
SCALES = np.geomspace(0.1, 10, DIM)
ANNEALING = {"round", "take back", "stop"}


@pytest.fixture(scope="module")
def target():
    """A Gaussian, for whose mean-field solution levelled draws are as good as the integral."""
    scales = jnp.asarray(SCALES)
    return qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(((z - 1) / scales) ** 2), dim=DIM)


EVIDENCE = 0.5 * DIM * np.log(2 * np.pi) + np.sum(np.log(SCALES))


def test_a_climb_at_rest_ends_the_fit_where_fresh_draws_promise_nothing(target):
    result = qg.fit(target, "mean-field", key=jr.key(0))
    kinds = [d.kind for d in result.decisions]
    assert kinds == ["climb", "climb stop"]
    assert result.status is qg.Status.CONVERGED
    assert "promises" in result.explain()
    assert abs(result.elbo - EVIDENCE) < 0.5
    # The sizes of its draws miss a thousandth of the variance, in the tails.
    np.testing.assert_allclose(np.exp(result.q.log_std), SCALES, rtol=0.01)


def test_draws_that_mislead_a_climb_do_not_end_the_fit(target, monkeypatch):
    """At draws that are too small scales come out too large, and the climb rests there."""
    levelled = starts.equal_magnitude_pairs
    monkeypatch.setattr(starts, "equal_magnitude_pairs", lambda *given: 0.5 * levelled(*given))
    result = qg.fit(target, "mean-field", key=jr.key(0))
    kinds = {d.kind for d in result.decisions}
    assert "climb stop" not in kinds
    assert kinds & ANNEALING
    assert abs(result.elbo - EVIDENCE) < 0.5


# The ELBO of a network for diabetes-mini whose weights are all noise, and which explains nothing.
NOTHING = -566


def test_a_network_does_not_end_where_all_its_weights_are_noise():
    """From wide starts most climbs did, 60 nats below the best; so a start is drawn in."""
    task = qg.tasks.load("diabetes-mini")
    for seed in range(3):
        result = qg.fit(
            task.train,
            "mean-field",
            method=qg.Auto(steps=1000),
            batch_size=task.batch_size,
            key=jr.key(seed),
        )
        assert result.elbo > NOTHING + 40, seed


@pytest.fixture
def few(monkeypatch):
    """So few coordinates are many."""
    monkeypatch.setattr(auto, "MANY", DIM - 1)


@pytest.mark.usefixtures("few")
def test_a_start_that_is_close_to_the_answer_is_not_drawn_in(target):
    """A fit that goes on from another one's answer begins where that ended."""
    best = qg.MeanField(jnp.ones(DIM), jnp.log(SCALES))
    result = qg.fit(target, best, key=jr.key(0))
    assert abs(result.history["elbo"][0] - EVIDENCE) < 0.5
    assert min(result.history["elbo"]) > EVIDENCE - 0.5
    np.testing.assert_allclose(np.exp(result.q.log_std), SCALES, rtol=0.01)


@pytest.mark.usefixtures("few")
def test_an_ending_is_held_against_the_start_that_was_given(target):
    wide = qg.MeanField(jnp.zeros(DIM), jnp.full(DIM, 3.0))
    result = qg.fit(target, wide, key=jr.key(0))
    first = qg.fit(target, wide, method=qg.Sgd(steps=1), key=jr.key(0)).history["elbo"][0]
    assert abs(result.history["elbo"][0] / first - 1) < 0.1
