"""When a fit under way is looked at for divergence, and when again."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.diagnostics.propriety import DEFAULT, LogDensityProbe
from quietgrad.evaluation.points import Points
from quietgrad.session import Problem, Recorder
from quietgrad.session.endings import check_divergence


@pytest.mark.parametrize(("moved", "wider", "looked"), [(0.0, 0.0, 0), (3.0, 1.0, 0), (1e3, 0.0, 1)])
def test_coordinates_are_looked_at_where_they_have_moved_far(moved, wider, looked):
    """A normal far away is a proper posterior: the fit goes on, and is looked at again much later."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((z - moved) ** 2), dim=2)
    start = qg.MeanField(jnp.zeros(2), jnp.zeros(2))
    answer = qg.MeanField(jnp.full(2, moved), jnp.full(2, wider))
    session, asked = Recorder(Problem(target, start), key=jr.key(0)), []
    points = Points(target, np.dtype(float))

    def values(z):
        asked.append(len(z))
        return points(z)[0]

    probe = LogDensityProbe(target, float, values, points)
    first, last = (session.candidate(q, 0) for q in (start, answer))
    factor = check_divergence(probe, last, first, 30.0)
    assert factor == pytest.approx(30.0 * DEFAULT.displaced**looked)
    assert bool(asked) == bool(looked)
