"""Bending a Gaussian on the host: it follows bananas, funnels and skew, and compiles nothing."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sessions import session_of

import quietgrad as qg
from quietgrad.evaluation.elbo_terms import Difference
from quietgrad.families import Curved
from quietgrad.methods.rungs import CurvedRung, FlowRung, FullRankRung
from quietgrad.solvers import Feedback
from quietgrad.solvers.bending import Bending

LOG_2PI = np.log(2 * np.pi)


def banana(z):
    return -0.5 * z[0] ** 2 - 0.5 * ((z[1] - z[0] ** 2) / 0.3) ** 2 - LOG_2PI - np.log(0.3)


def reversed_banana(z):
    return banana(z[::-1])


def funnel(z):
    """v ~ N(0, 1), others N(0, exp(v)) given v."""
    spread = -0.5 * z[1:] ** 2 * jnp.exp(-z[0]) - 0.5 * z[0] - 0.5 * LOG_2PI
    return -0.5 * z[0] ** 2 - 0.5 * LOG_2PI + jnp.sum(spread)


def skewed(z):
    """Logarithms of two Gamma(1/2) variables, skewed to the left; Gamma(1/2)^2 = pi."""
    return jnp.sum(0.5 * z - jnp.exp(z)) - np.log(np.pi)


@pytest.mark.turns(2)
@pytest.mark.parametrize("density", [banana, reversed_banana, funnel, skewed])
def test_a_bend_follows_what_a_gaussian_cannot(density):
    """The log evidence of each is zero, so that the ELBO is minus the divergence."""
    target = qg.Target.from_logdensity(density, dim=2)
    method = qg.Auto(rungs=(FullRankRung(), CurvedRung()), by_clock=False)
    gaussian = qg.fit(target, "full-rank", key=jr.key(0))
    result = qg.fit(target, "auto", method=method, key=jr.key(0))
    assert isinstance(result.q, Curved)
    assert result.status is qg.Status.CONVERGED
    assert result.elbo < 5 * result.elbo_error + 1e-6
    assert result.elbo > -0.02 - 5 * result.elbo_error
    assert result.elbo > gaussian.elbo


def after_two_steps(dim, size):
    """Parameters from the identity, towards a normal density with a ripple of this size."""
    along = jnp.asarray(np.random.default_rng(0).normal(size=dim) / np.sqrt(dim))
    target = qg.Target.from_logdensity(
        lambda z: -0.5 * z @ z + size * jnp.sin(along @ z + 1.0) + size * jnp.cos(z[0]), dim=dim
    )
    q = Curved.init(dim, key=jr.key(0))
    session, solver = session_of(target, q), Bending(length=2)
    bend = solver.step(session, solver.init(session, session.evaluate(q, 0)), None).state.bend
    return np.concatenate([bend.own.ravel(), bend.pairs.ravel()])


def test_the_first_step_is_as_long_for_every_parameter_and_shorter_in_more_dimensions():
    """Half the rate, as the cosine has it in the middle of a round; at its end it is nothing."""
    for dim in (2, 8):
        moves = after_two_steps(dim, 1.0)
        np.testing.assert_allclose(np.abs(moves), 0.5 * Bending().rate / np.sqrt(dim), rtol=1e-3)


def test_steps_follow_the_gradient_however_small_it_is():
    """Shorter ones where the Gaussian is the posterior but for a billionth, and no other way."""
    large, small = after_two_steps(2, 1.0), after_two_steps(2, 1e-9)
    np.testing.assert_array_equal(np.sign(small), np.sign(large))
    assert np.all(np.abs(small) < np.abs(large))


def test_the_mean_of_a_rounds_later_half_is_proposed_beside_its_end():
    """In a round of two steps or of three these are the same place: the last step has length zero."""
    target = qg.Target.from_logdensity(banana, dim=2)
    q = Curved.init(2, key=jr.key(0))
    session = session_of(target, q)
    for length in (2, 3):
        solver = Bending(length=length)
        end, late = solver.step(session, solver.init(session, session.evaluate(q, 0)), None).members
        assert np.any(end.bend.own != q.bend.own)
        np.testing.assert_array_equal(late.bend.own, end.bend.own)
        np.testing.assert_array_equal(late.bend.pairs, end.bend.pairs)


def test_draws_without_a_density_do_not_move_the_bend():
    target = qg.Target.from_logdensity(lambda z: jnp.nan * jnp.sum(z), dim=2)
    q = Curved.init(2, key=jr.key(0))
    session, solver = session_of(target, q), Bending(length=2)
    for member in solver.step(session, solver.init(session, session.candidate(q, 0)), None).members:
        np.testing.assert_array_equal(member.bend.own, q.bend.own)
        np.testing.assert_array_equal(member.bend.pairs, q.bend.pairs)


def test_a_round_that_clearly_lost_is_taken_back_at_half_the_rate():
    """The first move of a round has the length of its rate, whatever the gradient: see above."""
    target = qg.Target.from_logdensity(banana, dim=2)
    q = Curved.init(2, key=jr.key(0))
    session, solver = session_of(target, q), Bending(length=2)
    start = session.evaluate(q, 0)
    state = solver.step(session, solver.init(session, start), None).state
    for nats in (1.0, -1.0):
        feedback = Feedback(start, start, Difference(nats, 0.01), (start,))
        # One pass of as many steps as before, so that both rounds compare.
        after = solver.step(session, state._replace(rounds=0), feedback).state
        lost = nats < 0
        assert after.rate == (state.rate / 2 if lost else state.rate)
        begun = np.zeros_like(state.bend.own) if lost else state.bend.own
        moves = np.abs(after.bend.own - begun)
        np.testing.assert_allclose(moves, 0.5 * after.rate, rtol=1e-3)


def test_no_program_is_compiled_for_it():
    def density(z):
        return banana(z) - 0.01 * jnp.sum(z**4)

    target = qg.Target.from_logdensity(density, dim=2)
    gaussian = qg.fit(target, "full-rank", key=jr.key(0))
    assert gaussian.programs > 0
    method = qg.Auto(rungs=(FullRankRung(), CurvedRung()))
    result = qg.fit(target, "auto", method=method, key=jr.key(0))
    assert isinstance(result.q, Curved)
    # None but the copies of its two arrays.
    assert result.programs <= 2


def test_a_trusted_answer_needs_no_flow():
    """The bend is the posterior, so that the flow above it in the plan is not tried."""
    target = qg.Target.from_logdensity(banana, dim=2)
    method = qg.Auto(rungs=(FullRankRung(), CurvedRung(), FlowRung()))
    result = qg.fit(target, "auto", method=method, key=jr.key(1))
    assert isinstance(result.q, Curved)
    assert "a flow" not in result.explain()


@pytest.mark.slow
def test_a_given_seed_gives_the_same_bend():
    target = qg.Target.from_logdensity(funnel, dim=3)
    method = qg.Auto(rungs=(FullRankRung(), CurvedRung()), by_clock=False)
    a, b = (qg.fit(target, "auto", method=method, key=jr.key(2)) for _ in range(2))
    assert np.array_equal(a.q.bend.pairs, b.q.bend.pairs)


@pytest.mark.slow
def test_a_bend_is_stored_in_a_checkpoint(tmp_path):
    """Rounds and the result; a second call returns what the first one found."""
    target = qg.Target.from_logdensity(banana, dim=2)
    method = qg.Auto(rungs=(FullRankRung(), CurvedRung()), by_clock=False)
    first = qg.fit(target, "auto", method=method, checkpoint=tmp_path, key=jr.key(3))
    again = qg.fit(target, "auto", method=method, checkpoint=tmp_path, key=jr.key(3))
    assert isinstance(again.q, Curved)
    assert np.array_equal(first.q.bend.pairs, again.q.bend.pairs)
