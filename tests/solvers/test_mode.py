"""The mode with its curvature: at the end of narrow ridges, and the higher of two."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hierarchy_models import normal_groups, normal_target
from sessions import session_of

import quietgrad as qg
from quietgrad._numerics.lbfgs import minimise, minimise_together
from quietgrad.evaluation.points import Points
from quietgrad.solvers import ModeSearch, Stop, drive


def found_mode(fn, dim, center=0.0):
    start = qg.MeanField(jnp.full(dim, center), jnp.zeros(dim))
    session = session_of(qg.Target.from_logdensity(fn, dim=dim), start)
    stop = Stop(iterations=1, patience=9)
    return drive(ModeSearch(), session.evaluate(start, 0), session, stop, name="mode")


def some(found):
    assert found is not None
    return found


@pytest.mark.parametrize("correlation", [0.0, 0.999, 0.9999999])
def test_a_ridge_is_followed_to_its_end(correlation):
    covariance = np.array([[1.0, correlation], [correlation, 1.0]])
    precision, mean = np.linalg.inv(covariance), np.array([300.0, -300.0])
    mode = some(found_mode(lambda z: -0.5 * (z - mean) @ precision @ (z - mean), 2).state.mode)
    # Newton steps end when they promise less than a thousandth of a nat: |d| < sqrt(2/1000) sds.
    assert (mode.z - mean) @ precision @ (mode.z - mean) < 2e-3
    np.testing.assert_allclose(mode.precision, precision, rtol=1e-6)


def test_newton_steps_alone_find_a_mode_whose_coordinates_differ_by_powers_of_ten():
    std, mean = np.array([1e-4, 1.0, 1e5]), np.array([1.0, -2.0, 3e5])
    correlation = np.eye(3) + 0.9 * (np.eye(3, k=2) + np.eye(3, k=-2))
    precision = np.linalg.inv(correlation * np.outer(std, std))
    target = qg.Target.from_logdensity(lambda z: -0.5 * (z - mean) @ precision @ (z - mean), dim=3)
    points, far = Points(target, np.float64), mean + np.array([3.0, -2.0, 1.0]) * std
    mode = some(ModeSearch().settle(points, far, -float(points(far[None])[0][0]), lambda: None))
    np.testing.assert_allclose(mode.z, mean, atol=1e-6 * std[0])
    np.testing.assert_allclose(
        mode.precision * np.outer(std, std), np.linalg.inv(correlation), atol=1e-6
    )


def test_the_higher_of_two_modes_is_found():
    """Searches from one place would all end on the hump next to it."""

    def humps(z):
        return jnp.logaddexp(-50 * (z[0] - 0.8) ** 2, -3.0 - 50 * (z[0] + 0.5) ** 2)

    mode = some(found_mode(humps, 1, center=-0.2).state.mode)
    assert abs(mode.z[0] - 0.8) < 0.01


def test_where_nothing_is_finite_there_is_no_mode():
    run = found_mode(lambda z: jnp.nan * z[0], 2)
    assert run.state.mode is None
    assert run.end == "no mode"


def test_a_start_around_the_mode_is_narrowed_until_its_elbo_is_finite():
    """Quadratic at the top, infinite beyond one: the curvature there says a scale of 1."""
    fn = lambda z: jnp.where(jnp.max(jnp.abs(z)) < 1.0, -0.5 * z @ z, -jnp.inf)  # noqa: E731
    run = found_mode(fn, 2)
    assert 0 < run.state.narrowed <= ModeSearch().narrowings
    assert run.feedback is not None
    begun = run.feedback.found
    assert np.isfinite(begun.terms.elbo)
    assert np.all(begun.q.variance() < 0.5)
    # A search takes no steps of the fit: what follows it begins at the first.
    assert run.end == "stationary"
    assert run.best.step == 0


def test_searches_that_share_evaluations_are_the_searches_alone():
    scales = 10.0 ** np.linspace(-1, 1, 6)

    def one(x):
        return float(np.sum(scales * (np.cosh(x) - 1))), scales * np.sinh(x)

    def many(x):
        found = [one(row) for row in x]
        return np.array([f for f, _ in found]), np.stack([g for _, g in found])

    starts = np.random.default_rng(0).normal(size=(4, 6))
    alone = [list(minimise(one, x))[-1].x for x in starts]
    together = minimise_together(many, starts, iterations=500)
    np.testing.assert_array_equal([at.x for at in together], alone)


def test_a_spike_narrower_than_its_numbers_is_no_mode():
    """A centred hierarchy rises for ever where its scale shrinks; a Gaussian's mode is one."""
    single = False
    with jax.enable_x64(single):
        target = normal_target(normal_groups(20, tau=0.3))
        points = Points(target, np.float32)
        spike = np.concatenate([[0.5, -17.0], np.full(20, 0.5)])
        value = float(points(spike[None])[0][0])
        assert np.isfinite(value)
        assert ModeSearch().settle(points, spike, -value, lambda: None) is None
        wide = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((z - 3.0) ** 2), dim=2)
        found = ModeSearch().settle(Points(wide, np.float32), np.ones(2), 4.0, lambda: None)
        assert found is not None
        assert np.allclose(found.z, 3.0)
