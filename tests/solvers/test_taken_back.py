"""What solvers do where a step went wrong: search again, go back, narrow their draws."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sessions import session_of

import quietgrad as qg
from quietgrad._numerics.lbfgs import minimise
from quietgrad.evaluation.elbo_terms import Difference
from quietgrad.evaluation.points import Points
from quietgrad.solvers import Annealed, Feedback, FixedDraws, ModeSearch, Newton
from quietgrad.solvers.bam import BatchAndMatch, matched
from quietgrad.solvers.newton import NewtonState

PRECISION = jnp.array([[2.0, 0.3], [0.3, 1.0]])


@pytest.fixture(scope="module")
def target():
    return qg.Target.from_logdensity(lambda z: -0.5 * z @ PRECISION @ z, dim=2)


def feedback_of(best, nats):
    return Feedback(best, best, Difference(nats, 0.01), (best,))


def test_a_step_across_a_valley_that_gains_next_to_nothing_is_not_taken():
    """From one side to nearly the same height on the other: half of it leads to the bottom."""
    # The slope promises 0.64 nats, of which this step would gain 0.00001.
    curvature = 2 - 2e-5

    def square(x):
        return 0.5 * curvature * float(x @ x), curvature * x

    first = next(minimise(square, np.array([0.4])))
    assert abs(first.x[0]) < 1e-3


def test_after_a_loss_a_newton_step_mixes_the_precision_of_before(target):
    """Not what the lost step had averaged, nor that of q: 0.7 times the old and 0.3 times the new."""
    solver = Newton(full_steps=9)
    q = qg.FullRank.init(2, key=jr.key(0))
    session = session_of(target, q)
    best, old = session.evaluate(q, 0), np.array([[5.0, 1.0], [1.0, 4.0]])
    lost = solver.step(session, NewtonState(q, precision=old), None).state
    again = solver.step(session, lost, feedback_of(best, -100.0)).state
    assert again.length == solver.shorten == 0.3
    np.testing.assert_allclose(again.precision, 0.7 * old + 0.3 * np.asarray(PRECISION), rtol=1e-6)


def test_a_rate_that_lost_is_not_tried_again(target):
    """Rounds that gain double the rate, but not to where a round was lost."""
    solver = Annealed(rate=0.02, length=5, by_clock=False)
    q = qg.MeanField(jnp.full(2, 0.1), jnp.zeros(2))
    session = session_of(target, q)
    start = session.evaluate(q, 0)
    step = solver.step(session, solver.init(session, start), None)
    for nats, rate in ((-1.0, 0.01), (1.0, 0.01), (1.0, 0.01), (-1.0, 0.005), (1.0, 0.005)):
        step = solver.step(session, step.state, feedback_of(start, nats))
        assert step.state.rate == rate


class Late(Points):
    """Gradients are those of a standard normal, but not a number in the first two batches."""

    def __call__(self, z):
        """Remembers the batches."""
        self.batches = [*getattr(self, "batches", []), z]
        g = -z if len(self.batches) > 2 else np.full_like(z, np.nan)
        return -0.5 * np.sum(z**2, axis=1), g


def test_batches_that_were_narrowed_are_matched_as_draws_of_the_narrow_normal(target):
    """The first two batches have no gradients; then the covariance is that of the draws."""
    solver, q = BatchAndMatch(), qg.FullRank.init(2, key=jr.key(0))
    session = session_of(target, q)
    session.use_points(points := Late(target, q.dtype))
    mean, covariance = np.array([1.0, -2.0]), np.array([[3.0, 0.5], [0.5, 2.0]])
    found = solver._update(session, mean, covariance, 1)
    z, narrow = points.batches[-1], solver.narrow**2
    narrowed, wide = (
        matched(mean, factor * covariance, z, -z, solver.draws * 2 / 2) for factor in (narrow**2, 1.0)
    )
    for ours, theirs in zip(found, narrowed, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert not np.allclose(wide[1], narrowed[1], rtol=1e-3)


@pytest.mark.parametrize(("dim", "draws"), [(2, 32), (16, 8), (64, 4)])
def test_fixed_draws_are_fewer_where_coordinates_are_many(dim, draws):
    """All of their numbers together are bounded, but for two pairs."""
    solver = FixedDraws(draws=32, draw_numbers=128)
    q = qg.MeanField(jnp.zeros(dim), jnp.zeros(dim))
    session = session_of(qg.Target.from_logdensity(lambda z: -0.5 * z @ z, dim=dim), q)
    assert solver.init(session, session.candidate(q, 0)).e.shape == (draws, dim)


def test_a_search_for_the_mode_begins_where_q_is():
    """The only one there is; others begin around it."""
    seen = []

    class Watched(Points):
        def __call__(self, z):
            """Remembers the first points."""
            seen.append(z)
            return super().__call__(z)

    target = qg.Target.from_logdensity(lambda z: -jnp.sum(jnp.cosh(z)), dim=2)
    center, rng = np.array([0.7, -0.4]), np.random.default_rng(0)
    for searches in (1, 3):
        seen.clear()
        found = ModeSearch(searches=searches).find(
            Watched(target, np.dtype(float)), center, rng, lambda: None
        )
        assert found is not None
        np.testing.assert_allclose(found.z, np.zeros(2), atol=1e-4)
        assert len(seen[0]) == searches
        np.testing.assert_array_equal(seen[0][0], center)


def test_what_is_left_at_a_mode_are_the_nats_to_the_top(target):
    """Of a quadratic, from anywhere: half of the squared distance in its own metric."""
    points, z = Points(target, np.dtype(float)), np.array([1.0, -2.0])
    height = -0.5 * float(z @ PRECISION @ z)
    mode = ModeSearch(newton_steps=1).settle(points, z, -height, lambda: None)
    assert mode is not None
    assert mode.left == pytest.approx(-height, rel=1e-6)
    np.testing.assert_allclose(mode.precision, PRECISION, rtol=1e-6)


@pytest.mark.parametrize("outside", [jnp.nan, -jnp.inf])
def test_newton_steps_pull_their_draws_to_where_the_density_is_finite(outside):
    """Of a normal that is cut off at three, from a q that is twice as wide: the step is exact."""
    target = qg.Target.from_logdensity(
        lambda z: jnp.where(jnp.all(jnp.abs(z) < 3), -0.5 * z @ PRECISION @ z, outside), dim=2
    )
    q = qg.FullRank.init(2, key=jr.key(0)).for_quadratic(np.array([0.2, -0.3]), np.eye(2) / 4)
    step = Newton().step(session_of(target, q), NewtonState(q), None)
    assert step.end is None
    np.testing.assert_allclose(step.members[0].mean(), np.zeros(2), atol=1e-6)
    np.testing.assert_allclose(step.state.precision, PRECISION, rtol=1e-6)
