"""Newton steps: Gaussians found exactly, the fixed point is the optimum, and what loses is not kept."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from oracles import assert_same
from sessions import Counted, session_of

import quietgrad as qg
from quietgrad.diagnostics.expected_gain import expected_gain, paired_square
from quietgrad.evaluation.elbo_terms import Difference, ElboEvaluator, paired_difference
from quietgrad.evaluation.points import Points
from quietgrad.families import REGISTRY, FitsQuadratic
from quietgrad.methods.gaussian import Curvature
from quietgrad.solvers import Feedback, Newton, NewtonState, Stop, drive
from quietgrad.solvers.newton import (
    cholesky_from_basis,
    make_positive_definite,
    newton_step,
    precision_from_basis,
)

DIM = 4
GAUSSIANS = ["mean-field", "low-rank", "full-rank"]
NEWTON = Newton()


def make(name, key, dim=DIM):
    settings = {"rank": 1} if name == "low-rank" else {}
    return REGISTRY[name].init(dim, key=key, **settings)


def gaussian(precision, mean):
    """A normalised Gaussian target: its best ELBO is zero."""
    constant = 0.5 * (jnp.linalg.slogdet(precision)[1] - len(mean) * jnp.log(2 * jnp.pi))
    return qg.Target.from_logdensity(
        lambda z: constant - 0.5 * (z - mean) @ precision @ (z - mean), dim=len(mean)
    )


def run(target, q, solver=NEWTON, *, start=None, **settings):
    session = session_of(target, q)
    first = session.evaluate(q, 0)
    stop = Stop(**{"gain": 0.05, "iterations": 24, "least": solver.full_steps + 1} | settings)
    found = drive(solver, start or first, session, stop, name="newton")
    return found.best, session, found


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", ["low-rank", "full-rank"])
def test_a_gaussian_inside_the_family_is_found(name, key):
    keys = jr.split(key, 3)
    factor = 2 * jr.normal(keys[0], (DIM, 1))
    precision = jnp.linalg.inv(factor @ factor.T + jnp.diag(jnp.exp(jr.normal(keys[1], (DIM,)))))
    mean = jr.normal(keys[2], (DIM,))
    found, session, _ = run(gaussian(precision, mean), make(name, key))
    # Gradient and Hessian of a Gaussian are exact at any draws: only the solver's error is left, which
    # ends at a thousandth of a nat an iteration.
    assert session.final_terms(found.q).elbo > -0.02
    np.testing.assert_allclose(found.q.mean(), mean, atol=1e-6)


def test_mean_field_finds_the_means_and_conditional_variances_of_a_gaussian(key):
    root = jr.normal(key, (DIM, DIM))
    precision, mean = root @ root.T + jnp.eye(DIM), jr.normal(jr.fold_in(key, 1), (DIM,))
    found, *_ = run(gaussian(precision, mean), make("mean-field", key))
    np.testing.assert_allclose(found.q.loc, mean, atol=1e-6)
    np.testing.assert_allclose(found.q.variance(), 1 / jnp.diagonal(precision), rtol=1e-6)


def bent(z):
    return -jnp.sum(jnp.exp(0.7 * z)) + jnp.sum(z) - 0.3 * jnp.sum(z) ** 2


@pytest.mark.turns(2)
@pytest.mark.parametrize("name", ["mean-field", "full-rank"])
def test_the_fixed_point_is_stationary_for_the_elbo(name, key):
    """On a target that is no Gaussian, a long stochastic fit finds nothing better."""
    target = qg.Target.from_logdensity(bent, dim=2)
    found, *_ = run(target, make(name, jr.key(0), 2))
    method = qg.Sgd(qg.estimator("quiet", draws=20), steps=3000)
    longer = qg.fit(target, found.q, method=method, key=key)
    judge = ElboEvaluator(target, pairs=2000, seed=jr.key_data(jr.key(9)))
    gain = judge.terms(longer.q).values - judge.terms(found.q).values
    assert np.mean(gain) < 0.01 + 5 * np.std(gain) / np.sqrt(gain.size)


def test_a_step_that_lost_is_taken_again_from_the_best_and_shorter():
    precision = np.array([[2.0, 0.6], [0.6, 1.0]])
    target = qg.Target.from_logdensity(lambda z: -0.5 * z @ jnp.asarray(precision) @ z, dim=2)
    start = qg.FullRank.init(2, key=jr.key(0), spread=0.0)
    best, astray = (start.for_quadratic(np.full(2, at), precision) for at in (5.0, 1e3))
    session = session_of(target, start)
    here, lost = session.evaluate(best, 0), session.evaluate(astray, 1)
    change = paired_difference(lost.terms, here.terms)
    assert change.nats < -NEWTON.loss
    state = NewtonState(astray, 1e-6 * precision, before=precision, number=1, taken=1)
    again = NEWTON.step(session, state, Feedback(here, lost, change, (lost,)))
    assert again.state.length == NEWTON.shorten
    # The whole step from the best one leads to the top.
    np.testing.assert_allclose(again.members[0].mean(), 5 * (1 - NEWTON.shorten), rtol=1e-8)
    small = Difference(-0.9 * NEWTON.loss, 0.1)
    on = NEWTON.step(session, state, Feedback(here, lost, small, (lost,)))
    np.testing.assert_allclose(on.members[0].mean(), 0.0, atol=1e-6)


def test_steps_that_go_on_average_with_those_before():
    """After ten steps the next one is of length 2/11: what it mixes in must be what is there already."""
    precision = np.array([[2.0, 0.6], [0.6, 1.0]])
    target = qg.Target.from_logdensity(lambda z: -0.5 * z @ jnp.asarray(precision) @ z, dim=2)
    q = qg.FullRank(jnp.full(2, 5.0), jnp.zeros(3)).for_quadratic(np.full(2, 5.0), precision)
    session = session_of(target, q)
    step = NEWTON.step(session, NewtonState(q, precision, number=10), None)
    np.testing.assert_allclose(step.state.precision, precision, rtol=1e-8)
    np.testing.assert_allclose(step.members[0].mean(), 5 * (1 - 2 / 11), rtol=1e-8)
    off = NEWTON.step(session, NewtonState(q, 2 * precision, number=10), None).state
    np.testing.assert_allclose(off.precision, (2 - 2 / 11) * precision, rtol=1e-8)
    assert off.afresh().precision is None
    assert off.afresh().number == 0


def test_draws_that_are_not_finite_are_pulled_towards_the_mean():
    """A log density that is NaN beyond 2.5: the pulled draws still see its curvature."""
    target = qg.Target.from_logdensity(
        lambda z: jnp.where(jnp.max(jnp.abs(z)) < 2.5, -2.0 * z @ z, jnp.nan), dim=2
    )
    q = qg.FullRank.init(2, key=jr.key(0), spread=0.0)
    session = session_of(target, q)
    step = NEWTON.step(session, NEWTON.init(session, session.evaluate(q, 0)), None)
    np.testing.assert_allclose(step.state.fitted, 4 * np.eye(2), atol=1e-9)
    nowhere = session_of(qg.Target.from_logdensity(lambda z: jnp.nan * z[0], dim=2), q)
    ended = NEWTON.step(nowhere, NewtonState(q, taken=3), None)
    # Nothing is proposed, and the state is that of before.
    assert (ended.end, ended.members, ended.iterations) == ("no curvature", (), 3)
    assert ended.state.q is q


def test_draws_of_a_step_are_its_own():
    """The same step twice takes the same draws, the next one others: a checkpoint needs no generator."""
    target, q = qg.Target.from_logdensity(bent, dim=2), make("full-rank", jr.key(0), 2)
    session = session_of(target, q)
    first, again = (NEWTON.step(session, NewtonState(q), None).state for _ in range(2))
    other = NEWTON.step(session, NewtonState(q, taken=1), None).state
    np.testing.assert_array_equal(first.fitted, again.fitted)
    assert np.any(first.fitted != other.fitted)


def test_badly_scaled_coordinates_are_no_problem(key):
    scale = jnp.array([1e-5, 1.0, 1e5, 1e2])
    correlation = jnp.eye(DIM).at[0, 2].set(0.9999).at[2, 0].set(0.9999)
    precision = jnp.linalg.inv(correlation * scale[:, None] * scale[None, :])
    found, session, _ = run(gaussian(precision, 3 * scale), make("full-rank", key))
    assert session.final_terms(found.q).elbo > -0.01


@pytest.mark.parametrize("name", GAUSSIANS)
def test_host_forms_are_the_devices(name, key):
    # A start has no correlations, which a form could forget.
    q = jax.tree.map(lambda x: x + 0.3 * jr.normal(key, x.shape, x.dtype), make(name, key))
    assert isinstance(q, FitsQuadratic)
    e = q.base.sample((6, q.base_dim), q.dtype, key=key)
    z, log_prob = jax.vmap(q.transport_and_log_prob)(e)
    assert_same(q.host_transport(np.asarray(e)), z, operations=20)
    assert_same(q.host_log_prob(np.asarray(e)), log_prob, operations=50)
    covariance = q.covariance_matmul(jnp.eye(DIM))
    assert_same(q.host_covariance(), covariance, operations=20)
    g = np.asarray(jr.normal(key, (DIM,)))
    assert_same(np.sum(q.whitened(g) ** 2), g @ np.asarray(covariance) @ g, operations=50)


@pytest.mark.parametrize("name", ["mean-field", "full-rank"])
def test_scale_gradients_are_the_elbos_in_fishers_metric(name, key):
    """Their squared length is that of the gradient by the inverse Fisher information of the scales."""
    q, target = make(name, key), qg.Target.from_logdensity(bent, dim=DIM)
    e = np.asarray(q.base.sample((50, DIM), q.dtype, key=key))
    slope = np.asarray(jax.vmap(jax.grad(target.log_density))(jax.vmap(q.transport)(e)))
    ours = q.scale_gradient(e, slope)
    if name == "mean-field":
        literal = 1 + np.mean(slope * e, axis=0) * np.exp(q.log_std)
        assert_same(np.sum(ours**2), np.sum(literal**2) / 2, operations=200)
    else:
        root = np.asarray(q.scale())
        moved = np.tril(np.eye(DIM) + np.mean((slope @ root)[:, :, None] * e[:, None, :], axis=0))
        literal = np.sum(np.tril(moved, -1) ** 2) + np.sum(np.diagonal(moved) ** 2) / 2
        assert_same(np.sum(ours**2), literal, operations=200)


def test_whom_they_suit():
    target = gaussian(jnp.eye(DIM), jnp.zeros(DIM))
    points, plan = Points(target, np.float64), Curvature()
    suited = {name: plan.suits(points, REGISTRY[name].init(DIM, key=jr.key(0))) for name in REGISTRY}
    assert suited == {name: name in GAUSSIANS for name in REGISTRY}
    assert not plan.suits(points, qg.FullRank.init(DIM, key=jr.key(0), base=qg.StudentT(df=2.0)))
    few = Curvature(mean_field_dim=DIM - 1)
    suited = {name: few.suits(points, make(name, jr.key(0))) for name in GAUSSIANS}
    assert suited == {"mean-field": False, "low-rank": True, "full-rank": True}


def test_a_curvature_is_made_positive_and_good_ones_are_left_alone():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    good = root @ root.T
    np.testing.assert_array_equal(make_positive_definite(good), good)
    bad = good - 3 * np.diag(np.diagonal(good))
    values = np.linalg.eigvalsh(bad)
    np.testing.assert_allclose(np.linalg.eigvalsh(make_positive_definite(bad)), np.sort(np.abs(values)))


def test_curvature_in_a_basis_is_the_targets_own():
    rng = np.random.default_rng(0)
    covariance = np.cov(rng.normal(size=(5, 9))) * np.outer(*2 * [10.0 ** np.arange(-3, 2)])
    basis, curvature = np.linalg.cholesky(covariance), np.cov(rng.normal(size=(5, 9)))
    precision, gradient = precision_from_basis(basis, curvature), rng.normal(size=5)
    np.testing.assert_allclose(basis.T @ precision @ basis, curvature, atol=1e-9)
    step = newton_step(basis, curvature, gradient)
    np.testing.assert_allclose(step, np.linalg.solve(precision, gradient), rtol=1e-6)
    root = cholesky_from_basis(basis, curvature)
    np.testing.assert_allclose(root @ root.T @ precision, np.eye(5), atol=1e-6)
    assert np.all(np.diagonal(root) > 0)


def test_a_squared_mean_is_estimated_without_its_noise():
    """Half |mean|^2 of vectors with mean 0.3 in each of 10 coordinates and much noise: 0.45."""
    rng = np.random.default_rng(0)
    found = [paired_square(0.3 + rng.normal(size=(8, 10))) for _ in range(2000)]
    nats = np.array([f.nats for f in found])
    assert abs(np.mean(nats) - 0.45) < 5 * np.std(nats) / np.sqrt(nats.size)
    # The errors are those of the spread, to the accuracy of a jackknife over 8 groups.
    assert 0.8 < np.mean([f.error for f in found]) / np.std(nats) < 1.5


@pytest.mark.parametrize("name", ["mean-field", "full-rank"])
def test_the_expected_gain_is_what_an_optimum_leaves(name):
    """For a Gaussian target and q of the right shape, d standard deviations away: d^2 / 2 each."""
    target = gaussian(jnp.eye(DIM), jnp.zeros(DIM))
    points, rng = Points(target, np.float64), np.random.default_rng(0)
    there = REGISTRY[name].init(DIM, key=jr.key(0), spread=0.0)
    found = expected_gain(points, there, rng)
    assert found.non_negative.clearly_below(0.01)
    away = make(name, jr.key(0)).for_quadratic(np.full(DIM, 0.5), np.eye(DIM))
    found = expected_gain(points, away, rng)
    assert abs(found.nats - 0.5) < 5 * found.error + 1e-6


def test_a_slow_ridge_shows_in_the_expected_gain():
    """Mean-field at the right scales, one step along a ridge with correlation 0.9999.

    Its own metric sees almost nothing, the target's sees the half nat that is there.
    """
    covariance = np.array([[1.0, 0.9999], [0.9999, 1.0]])
    precision = np.linalg.inv(covariance)
    points = Points(gaussian(jnp.asarray(precision), jnp.zeros(2)), np.float64)
    mean = np.linalg.cholesky(covariance) @ np.array([1.0, 0.0])
    q = make("mean-field", jr.key(0), 2).for_quadratic(mean, precision)
    rng = np.random.default_rng(0)
    assert expected_gain(points, q, rng).non_negative.clearly_below(0.1)
    seen = expected_gain(points, q, rng, precision)
    assert abs(seen.nats - 0.5) < 5 * seen.error + 1e-6


def test_a_target_that_is_flat_in_one_direction_has_an_expected_gain():
    """Its precision is singular, so the gain is measured in q's own metric."""
    precision = np.array([[1.0, 1.0], [1.0, 1.0]])
    points = Points(gaussian(jnp.asarray(precision), jnp.zeros(2)), np.float64)
    q = make("full-rank", jr.key(0), 2).for_quadratic(np.zeros(2), np.eye(2))
    own, found = (
        expected_gain(points, q, np.random.default_rng(0), given) for given in (None, precision)
    )
    assert found == own
    assert np.isfinite(found.nats)


@pytest.mark.parametrize("dim", [2, 8, 30])
def test_hessians_keep_to_their_products(dim):
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=dim)
    q = qg.FullRank.init(dim, key=jr.key(0))
    points = Counted(target, q.dtype)
    solver = Newton(hessian_products=64, least_draws=4, most_draws=32)
    gradient, hessian = solver._averages(points, q, q.host_root(), np.random.default_rng(0))
    # As many draws as the products allow, but for the bounds and the pairs that draws come in.
    assert points.spent <= max(64, 4 * dim)
    assert points.spent >= min(64, 32 * dim) - 2 * dim
    root = q.host_root()
    np.testing.assert_allclose(hessian, -root.T @ root, atol=1e-6)
    assert gradient.shape == (dim,)
