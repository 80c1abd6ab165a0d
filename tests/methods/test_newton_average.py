"""The average curvature of Newton steps: on a Gaussian every share of it is the target's own."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

import quietgrad as qg
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
