"""Newton steps from the mode: where they begin, and that they do."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.evaluation.points import Points
from quietgrad.methods.gaussian import Curvature
from quietgrad.session import Problem, Recorder
from quietgrad.solvers import ModeSearch


@pytest.mark.parametrize(("halvings", "found"), [(5, True), (2, False)])
def test_a_mode_far_narrower_between_walls_than_its_curvature_says_is_begun_at(halvings, found):
    """The sd is one by its curvature, and a draw of 64 pairs is some 2.5 sds out: within walls at 0.12
    after four halvings or five, not after two."""
    target = qg.Target.from_logdensity(
        lambda z: jnp.where(jnp.abs(z[0]) < 0.12, -0.5 * z[0] ** 2, -jnp.inf), dim=1
    )
    around = qg.MeanField(jnp.zeros(1), jnp.zeros(1))
    session = Recorder(Problem(target, around), key=jr.key(0))
    session.use_points(Points(target, around.dtype))
    curvature = Curvature(mode=ModeSearch(narrowings=halvings))
    begun = curvature.from_mode(session, around, around, 0.5)
    assert (begun is not None) is found
    if begun is not None:
        run, is_mode = begun
        assert is_mode
        assert np.isfinite(run.best.terms.elbo)


def test_newton_steps_go_on_for_longer_where_a_smaller_gain_is_worth_it():
    """The fewest where nothing could be; the number is then that of full steps and one more."""
    target = qg.Target.from_logdensity(
        lambda z: jnp.sum(-jnp.exp(z) + 0.5 * z) - 0.5 * jnp.sum((z - jnp.mean(z)) ** 2), dim=2
    )
    q, curvature = qg.FullRank(jnp.array([3.0, -4.0]), jnp.zeros(3)), Curvature()
    taken = []
    for gain in (1e-5, 1e6):
        session = Recorder(Problem(target, q), key=jr.key(0))
        session.use_points(Points(target, q.dtype))
        run = curvature.steps_from(session, session.evaluate(q, 0), gain)
        taken.append(run.state.taken)
    assert taken[0] > taken[1] == curvature.newton.full_steps + 1
