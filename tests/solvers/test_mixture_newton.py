"""Newton steps of mixtures: the posterior is their fixed point, and they find it from afar."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.scipy.special import logsumexp
from sessions import Counted, session_of

import quietgrad as qg
from quietgrad.families import Components, Mixture
from quietgrad.solvers import MixtureNewton, Stop, drive
from quietgrad.solvers.mixture import MixtureState

CROSS = Components(
    np.log([0.4, 0.6]),
    np.array([[0.0, 0.0], [1.0, -1.0]]),
    np.linalg.cholesky(np.array([[[2.0, 1.8], [1.8, 2.0]], [[2.0, -1.8], [-1.8, 2.0]]])),
)


def target_of(found):
    """The normalised log density of a mixture: its best ELBO is zero."""
    inverse = jnp.asarray(np.linalg.inv(found.root))
    log_det = np.sum(np.log(np.diagonal(found.root, axis1=1, axis2=2)), axis=1)
    constant = jnp.asarray(found.log_weights - log_det - np.log(2 * np.pi))

    def log_density(z):
        x = jnp.einsum("kij,kj->ki", inverse, z[None] - jnp.asarray(found.loc))
        return logsumexp(constant - 0.5 * jnp.sum(x**2, axis=1))

    return qg.Target.from_logdensity(log_density, dim=2)


def test_the_posterior_is_a_fixed_point():
    q = Mixture.of(CROSS, np.dtype(float))
    session = session_of(target_of(CROSS), q)
    moved = MixtureNewton().moved(session, CROSS, 1.0, np.random.default_rng(0))
    assert moved is not None
    # f - log q is constant at every draw: nothing but rounding moves.
    for new, old in zip(moved, CROSS, strict=True):
        np.testing.assert_allclose(new, old, atol=1e-9)


@pytest.mark.parametrize("dim", [1, 3])
def test_one_component_takes_one_step_to_a_gaussian_posterior(dim):
    """However many dimensions there are beside how many components."""
    rng = np.random.default_rng(2)
    mean, root = rng.normal(size=dim), np.tril(rng.normal(size=(dim, dim)), -1) + 0.5 * np.eye(dim)
    precision = jnp.asarray(np.linalg.inv(root @ root.T))
    target = qg.Target.from_logdensity(lambda z: -0.5 * (z - mean) @ precision @ (z - mean), dim=dim)
    start = Components(np.zeros(1), np.zeros((1, dim)), 2.0 * np.eye(dim)[None])
    session = session_of(target, Mixture.of(start, np.dtype(float)))
    moved = MixtureNewton().moved(session, start, 1.0, rng)
    assert moved is not None
    np.testing.assert_allclose(moved.loc[0], mean, atol=1e-9)
    np.testing.assert_allclose(moved.root[0] @ moved.root[0].T, root @ root.T, atol=1e-9)
    np.testing.assert_allclose(moved.log_weights, 0.0, atol=1e-12)


@pytest.mark.parametrize("number", [0, 1, 2, 5])
def test_later_steps_are_as_long_as_an_average_of_them_needs(number):
    """P <- (1 - r) P + r A and m <- m + r P^-1 A (a - m) for a Gaussian N(a, A^-1), in closed form."""
    solver, length = MixtureNewton(full_steps=2), 0.8
    mean, precision = np.array([1.0, -2.0]), np.array([[2.0, 0.5], [0.5, 1.0]])
    target = qg.Target.from_logdensity(lambda z: -0.5 * (z - mean) @ precision @ (z - mean), dim=2)
    start = Components(np.zeros(1), np.zeros((1, 2)), 0.5 * np.eye(2)[None])
    q = Mixture.of(start, np.dtype(float))
    step = solver.step(session_of(target, q), MixtureState(q, number, length), None)
    # The first two are whole. Of those after, the t-th has r = 2/(t + 2), which weighs it in the average
    # in proportion to t + 1.
    rho = length * (1.0 if number < 2 else 2 / (number + 1 - 2 + 2))
    moved = step.members[0].host_components()
    after = (1 - rho) * 4 * np.eye(2) + rho * precision
    np.testing.assert_allclose(np.linalg.inv(moved.root[0] @ moved.root[0].T), after, rtol=1e-9)
    np.testing.assert_allclose(moved.loc[0], rho * np.linalg.solve(after, precision @ mean), rtol=1e-9)
    assert (step.state.number, step.state.length) == (number + 1, length)


@pytest.mark.parametrize("dim", [2, 8, 30])
def test_hessians_of_each_component_keep_to_their_products(dim):
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=dim)
    start = Components(
        np.log([0.5, 0.5]),
        np.stack([np.zeros(dim), np.ones(dim)]),
        np.eye(dim)[None] + np.zeros((2, 1, 1)),
    )
    session = session_of(target, Mixture.of(start, np.dtype(float)))
    points = Counted(target, np.dtype(float))
    session.use_points(points)
    solver = MixtureNewton(hessian_products=64, least_draws=4, most_draws=32)
    assert solver.moved(session, start, 1.0, np.random.default_rng(0)) is not None
    # As many draws as the products allow, but for the bounds and the pairs that draws come in.
    assert points.spent <= 2 * max(64, 4 * dim)
    assert points.spent >= 2 * (min(64, 32 * dim) - 2 * dim)


def test_steps_lead_to_the_posterior():
    rng = np.random.default_rng(1)
    start = Components(np.log([0.5, 0.5]), CROSS.loc + 0.5 * rng.normal(size=(2, 2)), 1.3 * CROSS.root)
    q = Mixture.of(start, np.dtype(float))
    session = session_of(target_of(CROSS), q)
    stop = Stop(gain=1e-4, patience=4, iterations=40, conclusive=True)
    run = drive(MixtureNewton(), session.evaluate(q, 0), session, stop, name="mixture")
    # Half the variance of log weights, at which the solver has nothing left to find.
    assert run.best.terms.gap < 1e-3
    np.testing.assert_allclose(run.best.q.weights(), [0.4, 0.6], atol=0.02)


@pytest.mark.turns(2)
@pytest.mark.parametrize("family", ["mixture", "auto"])
def test_crossed_ridges_are_fitted(family):
    result = qg.fit(target_of(CROSS), family, key=jr.key(0))
    assert isinstance(result.q, Mixture)
    # The log evidence is zero; 0.02 nats are left to fits that end before all digits are found.
    assert abs(result.elbo) < 0.02 + 5 * result.elbo_error
    assert result.status is qg.Status.CONVERGED
