"""Endings that need a closer look: where a run blew up, and what bam still promises."""

import jax.numpy as jnp
import jax.random as jr
import optax
import pytest

import quietgrad as qg
from quietgrad.points import Points
from quietgrad.recorder import Problem, Recorder

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


def test_bam_does_not_rest_where_a_newton_step_promises_more():
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
    far = qg.FullRank(jnp.full(2, 5.0), jnp.zeros(3))
    for q, status in ((far, qg.Status.BUDGET), (qg.FullRank(jnp.zeros(2), jnp.zeros(3)), "converged")):
        recorder = Recorder(Problem(target, q), key=jr.key(0))
        recorder.look(q, 0)
        ending = qg.Bam()._ending(Points(target, q.dtype), recorder, rested=True)
        assert ending[0] == status
        assert "promises" in ending[1]
