"""Rungs of the ladder: values that a plan prints, that say why they cannot be tried."""

import jax.numpy as jnp
import jax.random as jr

import quietgrad as qg
from quietgrad.methods.rungs import RUNGS, FlowRung, FullRankRung


def test_the_plan_prints_every_rung_with_its_numbers():
    plan = str(qg.Auto())
    for rung in RUNGS:
        assert type(rung).__name__ in plan
    assert "most_dim: 3" in str(qg.Auto(rungs=(FullRankRung(), FlowRung(most_dim=3))))


def test_a_plan_without_rungs_stays_mean_field():
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2) - 20.0 * (z[0] - z[1]) ** 2, dim=3)
    result = qg.fit(target, "auto", method=qg.Auto(rungs=()), key=jr.key(0))
    assert isinstance(result.q, qg.MeanField)


def test_rungs_are_tried_in_the_order_of_the_plan():
    """Only a flow is offered, so the flow has to learn the correlation."""
    target = qg.Target.from_logdensity(
        lambda z: -0.5 * z[0] ** 2 - 0.5 * ((z[1] - z[0] ** 2) / 0.3) ** 2, dim=2
    )
    method = qg.Auto(rungs=(FlowRung(),), steps=4000, by_clock=False)
    result = qg.fit(target, "auto", method=method, key=jr.key(0))
    assert isinstance(result.q, qg.families.AutoregressiveFlow)
    assert [d.kind for d in result.decisions].count("up") == 1
