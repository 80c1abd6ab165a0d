"""Endings that need a closer look: where a run blew up, and what bam still promises."""

import jax.numpy as jnp
import jax.random as jr
import optax
import pytest

import quietgrad as qg
from quietgrad.evaluation.elbo_terms import Difference

EDGE = qg.Target.from_logdensity(lambda z: jnp.sum(z) + 0 * jnp.sqrt(6.0 - z[0]), dim=1)


@pytest.mark.parametrize("every", [7, 100])
def test_a_replay_finds_the_step_of_a_blow_up(every):
    """Draws decide when a point falls over the edge; chunks of any length must name the same step."""
    q = qg.MeanField(jnp.zeros(1), jnp.zeros(1))
    steps = []
    for evaluate_every in (1, every):
        method = qg.Sgd("nocv", optax.sgd(0.1), steps=100, evaluate_every=evaluate_every)
        result = qg.fit(EDGE, q, method=method, key=jr.key(3))
        assert result.status.failed
        steps.append(result.steps)
    assert steps[0] == steps[1] > 1


@pytest.mark.parametrize(
    ("nats", "error", "stationary", "status"),
    [
        (0.1, 0.1, True, "converged"),
        (12.0, 1.0, True, "budget"),
        (12.0, 20.0, True, "converged"),
        (0.1, 0.1, False, "budget"),
    ],
)
def test_bam_has_not_converged_where_a_newton_step_is_expected_to_gain(nats, error, stationary, status):
    ending = qg.Bam()._ending(Difference(nats, error), stationary=stationary)
    assert ending[0] == status
    assert f"is expected to gain {nats:.3f}" in ending[1]
