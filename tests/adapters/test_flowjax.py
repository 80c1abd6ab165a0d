"""FlowJAX's flows keep the promises of a family, start where they should, and fit."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from family_promises import PROMISES, promises_of
from flowjax.distributions import Normal, StandardNormal
from flowjax.flows import coupling_flow, planar_flow
from subjects import family

import quietgrad as qg
from quietgrad.adapters.flowjax import AutoregressiveFlow, CouplingFlow, FlowjaxFlow, SplineFlow

# The flow and the only dim at which it is asked for its promises, which take long to compile.
CHECKED = {"flowjax-coupling": (CouplingFlow, 2), "flowjax-autoregressive": (AutoregressiveFlow, 2)}


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in CHECKED])
def test_it_keeps_the_promises_of_a_family(name, register):
    cls, largest = CHECKED[name]
    register(name, cls)
    asked = [(case, p) for case, p in promises_of(name, largest) if case[1] == largest]
    kept = [PROMISES[p].check(case) for case, p in asked]
    assert len(kept) > 10


def test_its_score_is_the_derivative_of_its_density(register):
    register("flowjax-coupling", CouplingFlow)
    PROMISES["score_is_the_derivative_of_log_prob"].check(("flowjax-coupling", 2, None))


def banana(z):
    return -0.125 * z[0] ** 2 - 2.0 * (z[1] - 0.5 * z[0] ** 2) ** 2


@pytest.mark.slow
def test_a_spline_flow_beats_full_rank_on_a_banana(key):
    """Both by auto, which starts the flow from a mean-field solution, and judged by fresh draws."""
    target = qg.Target.from_logdensity(banana, 2)
    spline = qg.fit(target, SplineFlow.init(2, key=key), key=key)
    gaussian = qg.fit(target, "full-rank", key=key)
    best = np.log(2 * np.pi / np.sqrt(0.25 * 4.0))
    assert gaussian.elbo < best
    assert spline.elbo > gaussian.elbo + 5 * np.hypot(spline.elbo_error, gaussian.elbo_error)
    assert spline.elbo < best + 5 * spline.elbo_error


@pytest.mark.turns(2)
@pytest.mark.parametrize("cls", [CouplingFlow, SplineFlow, AutoregressiveFlow])
def test_it_starts_from_a_mean_field_solution(cls, key):
    solution = family("mean-field", 3)
    start = cls.init(3, key=key).start_from(solution, key=key)
    z = solution.sample(key, 5)
    found, expected = eqx.filter_jit(lambda a, b, z: (a.log_prob(z), b.log_prob(z)))(start, solution, z)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.slow
def test_spline_scores_are_derivatives(key):
    """At its start, where splines are tame enough to be undone to nine digits."""
    q = SplineFlow.init(3, key=key)
    e = jnp.asarray(np.random.default_rng(0).normal(size=3))
    z, log_q, score = eqx.filter_jit(lambda q, e: q.transport_and_score(e))(q, e)
    value, slope = eqx.filter_jit(eqx.filter_value_and_grad(lambda z, q: q.log_prob(z)))(z, q)
    np.testing.assert_allclose(log_q, value, rtol=1e-9)
    np.testing.assert_allclose(score, slope, rtol=1e-7)


def test_any_flow_of_flowjax_is_a_family(key):
    flow = planar_flow(key, base_dist=StandardNormal((3,)), invert=False, negative_slope=0.1)
    q = FlowjaxFlow.of(flow)
    z = q.sample(key, 4)
    np.testing.assert_allclose(q.log_prob(z), flow.log_prob(z), rtol=1e-9)


def test_what_does_not_fit_is_refused(key):
    slow = coupling_flow(key, base_dist=StandardNormal((3,)))
    moved = coupling_flow(key, base_dist=Normal(jnp.ones(3)), invert=False)
    given = coupling_flow(key, base_dist=StandardNormal((3,)), cond_dim=2, invert=False)
    for flow, reason in ((slow, "invert=False"), (moved, "StandardNormal"), (given, "cond_shape")):
        with pytest.raises(ValueError, match=reason):
            FlowjaxFlow.of(flow)
    with pytest.raises(TypeError, match="got int"):
        FlowjaxFlow.of(3)


@pytest.mark.slow
def test_quiet_steps_climb_and_a_second_flow_is_not_compiled_again(key):
    target = qg.Target.from_logdensity(lambda z: -z @ z, 2)
    fits = [
        qg.fit(target, CouplingFlow.init(2, key=k), method=qg.Sgd("quiet", steps=100), key=key)
        for k in jr.split(key)
    ]
    assert all(fit.history["elbo"][-1] > fit.history["elbo"][0] for fit in fits)
    assert fits[0].programs > 0
    assert fits[1].programs == 0
