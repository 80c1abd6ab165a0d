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
