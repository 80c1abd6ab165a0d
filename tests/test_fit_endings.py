"""How runs end: numbers that blow up, a user who interrupts, an ELBO that has stopped rising."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import quietgrad as qg

CLIFF = 5.5


def cliff(z):
    """Rises by one per unit of z; its gradient is NaN beyond `CLIFF`."""
    return jnp.sum(z) + 0 * jnp.sqrt(CLIFF - z[0])


def walker():
    """q so narrow that its draws are its location, which plain gradient steps raise by one each."""
    return qg.MeanField(jnp.zeros(1), jnp.full(1, -40.0))


@pytest.mark.parametrize("every", [1, 4, 100])
def test_blow_up_is_reported_with_its_step_and_the_last_finite_q(key, every):
    """After six steps q stands at 6, past the cliff; the seventh step would be NaN."""
    target = qg.Target.from_logdensity(cliff, dim=1)
    result = qg.fit(target, walker(), optimizer=optax.sgd(1.0), steps=100, evaluate_every=every, key=key)
    assert result.status is qg.Status.NON_FINITE
    assert result.status == "non-finite"
    assert result.steps == 6
    np.testing.assert_allclose(result.q.loc, 6, rtol=1e-12)
    assert np.all(np.isfinite(result.q.log_std))
    assert "learning rate" in result.hint
    assert result.history["step"][-1] <= 6


def test_blow_up_in_the_first_step_returns_the_start(key):
    target = qg.Target.from_logdensity(lambda z: jnp.sqrt(-1 - z[0] ** 2), dim=1)
    result = qg.fit(target, walker(), steps=100, key=key)
    assert result.status is qg.Status.NON_FINITE
    assert result.steps == 0
    np.testing.assert_array_equal(result.q.loc, 0)


def test_finite_parameters_with_an_infinite_elbo_count_as_blown_up(key):
    """The gradient is fine everywhere, but the density is zero in half of the space."""
    target = qg.Target.from_logdensity(lambda z: jnp.where(z[0] > 0, -z[0], -jnp.inf), dim=1)
    result = qg.fit(target, qg.MeanField(jnp.zeros(1), jnp.zeros(1)), steps=5, key=key)
    assert result.status is qg.Status.NON_FINITE
    assert np.isfinite(result.q.loc)


def test_interruption_returns_what_was_reached(key):
    def monitor(q, state, step):
        if step == 20:
            raise KeyboardInterrupt
        return {}

    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
    q = qg.MeanField.init(2, key=key)
    result = qg.fit(target, q, steps=100, evaluate_every=10, monitor=monitor, key=key)
    whole = qg.fit(target, q, steps=20, evaluate_every=10, key=key)
    assert result.status is qg.Status.INTERRUPTED
    assert result.steps == 20
    np.testing.assert_array_equal(result.q.loc, whole.q.loc)
    np.testing.assert_array_equal(result.history["step"], [0, 10])
    assert np.isfinite(result.elbo)
    assert "stopped by the user" in result.hint


def test_a_run_that_still_rises_ends_with_its_budget(key):
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((z - 100) ** 2), dim=1)
    result = qg.fit(target, qg.MeanField.init(1, key=key), steps=50, key=key)
    assert result.status is qg.Status.BUDGET
    assert "more steps" in result.hint


NOISE = np.random.default_rng(0).normal(size=50)
VERDICTS = {
    "flat": (np.full(50, -3.0), True),
    "falling": (-np.arange(50.0), True),
    "rising": (np.arange(50.0), False),
    "risen, then flat": (np.minimum(np.arange(50.0), 20.0), True),
    "flat under little noise": (0.1 * NOISE, True),
    "flat under much noise": (100 * NOISE, False),
    "too short": (np.full(9, -3.0), False),
    "just long enough": (np.full(10, -3.0), True),
    "not a number": (np.full(50, np.nan), False),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_plateau(name):
    elbo, arrived = VERDICTS[name]
    assert qg.Plateau().reached(list(elbo)) is arrived


def test_plateau_counts_gains_in_nats():
    """Fifths of ten evaluations each, one nat apart."""
    elbo = [0.0] * 40 + [1.0] * 10
    assert qg.Plateau(nats=1.1).reached(elbo)
    assert not qg.Plateau(nats=0.9).reached(elbo)
