"""The average curvature of Newton steps: on a Gaussian every share of it is the target's own."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.methods.auto import curvature
from quietgrad.methods.auto.curvature import LEAST_MORE, newton_from
from quietgrad.methods.auto.stage import Runner
from quietgrad.methods.newton import Curved, newton
from quietgrad.points import Points
from quietgrad.recorder import Problem, Recorder

PRECISION = np.array([[2.0, 0.6], [0.6, 1.0]])


def test_a_short_step_mixes_the_curvature_with_the_right_sign():
    """After ten steps the next one is of length 2/11: what it mixes in must be what is there already."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * z @ jnp.asarray(PRECISION) @ z, dim=2)
    q = qg.FullRank(jnp.full(2, 5.0), jnp.zeros(3)).for_quadratic(np.full(2, 5.0), PRECISION)
    recorder = Recorder(Problem(target, q), key=jr.key(0))
    start = Curved(q, recorder.look(q, 0).terms, 0, PRECISION, 10)
    found = newton(Points(target, q.dtype), start, recorder, np.random.default_rng(0), most_steps=1)
    assert found.terms.elbo > start.terms.elbo
    np.testing.assert_allclose(found.precision, PRECISION, rtol=1e-8)


def test_late_steps_forget_a_curvature_of_long_ago():
    """One round of them is enough, though what 24 steps have averaged is off by a factor of two.

    With steps of 2 / n a share of 4 * 3 / (14 * 13) is left of it after ten; going on from n = 24, half.
    """
    target = qg.Target.from_logdensity(lambda z: -0.5 * z @ jnp.asarray(PRECISION) @ z, dim=2)
    q = qg.FullRank(jnp.zeros(2), jnp.zeros(3)).for_quadratic(np.zeros(2), 2 * PRECISION)
    problem = Problem(target, q)
    recorder = Recorder(problem, key=jr.key(0))
    run = Runner(problem, recorder, None, by_clock=False, gain=0.05, probe_after=np.inf)
    ahead = Curved(q, recorder.look(q, 0).terms, 0, 2 * PRECISION, 24)
    answer, ending = newton_from(run, Points(target, q.dtype), ahead)
    assert answer.step == LEAST_MORE
    assert ending is not None
    assert isinstance(answer.q, qg.FullRank)
    left = np.linalg.inv(answer.q.host_covariance()) @ np.linalg.inv(PRECISION) - np.eye(2)
    np.testing.assert_allclose(left, 12 / 182 * np.eye(2), atol=1e-8)


@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_late_steps_that_are_worse_are_not_kept(scale, monkeypatch):
    """They end at another scale here; the judge's own draws have no say in it."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * z @ jnp.asarray(PRECISION) @ z, dim=2)
    q = qg.FullRank(jnp.zeros(2), jnp.zeros(3)).for_quadratic(np.zeros(2), PRECISION)
    problem = Problem(target, q)
    recorder = Recorder(problem, key=jr.key(0))
    run = Runner(problem, recorder, None, by_clock=False, gain=0.05, probe_after=np.inf)
    ahead = Curved(q, recorder.look(q, 0).terms, 0, PRECISION, 24)
    late = q.for_quadratic(np.zeros(2), PRECISION / scale**2)
    ended = Curved(late, recorder.look(late, 1).terms, 1, PRECISION, 24)
    monkeypatch.setattr(curvature, "newton", lambda *_, **__: ended)
    answer, _ = newton_from(run, Points(target, q.dtype), ahead)
    assert answer.q is (q if scale < 1 else late)
    assert recorder.answer.q is answer.q
