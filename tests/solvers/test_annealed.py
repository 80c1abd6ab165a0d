"""Annealed rounds: what is taken back, when they end, and when another estimator is looked for."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from sessions import session_of

import quietgrad as qg
from quietgrad.evaluation.elbo_terms import Difference, paired_difference
from quietgrad.session import Recorder
from quietgrad.solvers import LOST, Annealed, Feedback, Stop, annealed, drive
from quietgrad.solvers.choosing import Choice, burden

RATE = 0.02
SOLVER = Annealed(rate=RATE, length=10, by_clock=False)


def skewed(z):
    """A log density with curvature that changes, and scales far from one."""
    return (
        -0.5 * jnp.sum((z / jnp.array([0.1, 1.0, 5.0])) ** 2) - jnp.exp(0.3 * z[0]) - jnp.exp(0.2 * z[2])
    )


@pytest.fixture(scope="module")
def target():
    return qg.Target.from_logdensity(skewed, dim=3)


@pytest.fixture
def begun(target):
    """A session, and a candidate that is good already."""
    q = qg.MeanField(jnp.array([-0.01, 0.0, -1.0]), jnp.log(jnp.array([0.1, 1.0, 3.0])))
    session = session_of(target, q)
    return session, session.evaluate(q, 0)


def feedback_of(best, nats, error=0.01, found=None):
    found = best if found is None else found
    return Feedback(best, found, Difference(nats, error), (found,))


def test_the_average_and_the_last_iterate_of_a_round_are_proposed(begun):
    session, start = begun
    step = SOLVER.step(session, SOLVER.init(session, start), None)
    average, last = step.members
    assert step.iterations == SOLVER.length
    assert eqx.tree_equal(step.state.carry.params, eqx.filter(last, eqx.is_inexact_array))
    # Both are on the way from the start: the average of ten steps is closer to it.
    assert 0 < np.linalg.norm(average.loc - start.q.loc) < 10 * 0.02 * np.sqrt(3)
    one = dataclasses.replace(SOLVER, length=1)
    average, last = one.step(session, one.init(session, start), None).members
    assert eqx.tree_equal(average, last)


def test_a_round_that_clearly_lost_is_taken_back_at_half_the_rate(begun):
    session, start = begun
    first = SOLVER.step(session, SOLVER.init(session, start), None)
    again = SOLVER.step(session, first.state, feedback_of(start, -1.0))
    assert again.state.rate == RATE / 2
    assert again.state.length == SOLVER.length
    # From the best member, with the momentum of before the lost round.
    assert eqx.tree_equal(again.state.before.params, eqx.filter(start.q, eqx.is_inexact_array))
    assert int(again.state.before.optimizer.taken) == 0


def test_a_round_that_did_not_lose_is_followed_by_one_twice_as_long(begun):
    session, start = begun
    raised = Annealed(length=10, by_clock=False)
    first = raised.step(session, raised.init(session, start), None)
    for nats, error in ((1.0, 0.1), (-0.5, 0.4)):
        on = raised.step(session, first.state, feedback_of(start, nats, error))
        assert on.iterations == 10 + 20
        assert int(on.state.before.optimizer.taken) == 10
        # The family's advice says how far a successful round may raise the rate.
        assert on.state.rate == min(2 * first.state.rate, start.q.advice.most_anneal_rate)


def test_rounds_that_gain_double_the_rate_as_far_as_is_allowed(begun):
    """From a start of unknown quality: from the rate near an answer to that far from any."""
    session, start = begun
    unknown = Annealed(near=True, far=True, length=1, by_clock=False)
    advice, state = start.q.advice, unknown.init(session, start)
    rates = [state.rate]
    for nats in (None, 1.0, 1.0, 1.0, 1.0, 1.0):
        feedback = None if nats is None else feedback_of(start, nats)
        state = unknown.step(session, state, feedback).state
        rates.append(state.rate)
    # The first step has no feedback yet. At least one doubling is far from the limit.
    near, far = advice.near_rate, advice.explore_rate
    assert 2 * near < far / 1.5
    np.testing.assert_allclose(rates[1:], np.minimum(near * 2.0 ** np.arange(6), far), rtol=1e-12)


def test_all_rounds_together_have_the_most_steps(begun):
    session, start = begun
    few = dataclasses.replace(SOLVER, most_steps=13)
    first = few.step(session, few.init(session, start), None)
    second = few.step(session, first.state, feedback_of(start, 1.0, 0.1))
    assert (first.iterations, second.iterations) == (10, 13)


def test_a_round_takes_no_more_time_than_is_left(begun):
    """By the seconds that a step took in the round before: one step where not even that is left."""
    unlimited, start = begun
    limited = Recorder(unlimited.problem, seconds=1e4, key=jr.key(0))
    for session, pace, steps in (
        (limited, 1e6, 1),
        (limited, 1e-6, 10),
        (limited, 0.0, 10),
        (unlimited, 1e6, 10),
    ):
        state = SOLVER.init(session, start)._replace(pace=pace)
        assert SOLVER.step(session, state, None).iterations == steps


def test_steps_of_every_size_that_lose_end_it(begun):
    """A start that nothing near it beats: the answer stays, at ever smaller rates, to a true end."""
    session, start = begun
    best = start._replace(terms=start.terms._replace(values=start.terms.values + 100.0))
    solver = dataclasses.replace(SOLVER, most_lost=3)
    run = drive(solver, best, session, Stop(patience=1, conclusive=True), name="anneal")
    assert run.end == LOST
    assert run.best.q is start.q
    assert run.state.rate == RATE / 8
    assert run.iterations == 30


def test_rounds_end_when_one_clearly_gains_too_little(begun):
    session, start = begun
    stop = Stop(gain=0.5, patience=1, conclusive=True, least=SOLVER.length + 1, iterations=10_000)
    run = drive(SOLVER, start, session, stop, name="anneal")
    assert run.stationary
    assert run.feedback is not None
    assert run.feedback.change.non_negative.clearly_below(0.5)
    assert paired_difference(run.best.terms, start.terms).nats >= 0
    assert {d.kind for d in session.decisions} <= {"round", "take back"}


def test_draws_are_those_of_their_step(begun):
    """A round that is taken up again from its state makes the same steps: a checkpoint loses nothing."""
    session, start = begun
    state = SOLVER.init(session, start)
    first, again = (SOLVER.step(session, state, None) for _ in range(2))
    assert eqx.tree_equal(first.state.carry.params, again.state.carry.params)
    session.advance(10)
    assert not eqx.tree_equal(
        SOLVER.step(session, state, None).state.carry.params, first.state.carry.params
    )


def test_comparing_estimators_waits_until_it_is_cheap_and_noise_is_left(begun):
    session, start = begun
    solver = Annealed(length=10)
    state = solver.init(session, start)._replace(pace=1e-6)
    little, much = feedback_of(start, 0.1), feedback_of(start, 5.0)
    assert not solver._probe_due(session, state, little)
    session.clock._spent["optimise"] = 1e6
    assert solver._probe_due(session, state, little)
    assert not solver._probe_due(session, state, much)
    assert not solver._probe_due(session, state._replace(pace=1e4), little)
    assert not solver._probe_due(session, state._replace(probed=True), little)
    fixed = dataclasses.replace(solver, estimator=qg.estimator("nocv"))
    assert not fixed._probe_due(session, state, little)


def test_without_the_clock_comparing_waits_for_enough_steps(begun):
    session, start = begun
    state = SOLVER.init(session, start)
    needed = burden(start.q, state.estimator) / SOLVER.probe_share
    session.clock._spent["optimise"] = 1e6
    session.advance(int(0.9 * needed))
    assert not SOLVER._probe_due(session, state, feedback_of(start, 0.1))
    session.advance(int(1.1 * needed))
    assert SOLVER._probe_due(session, state, feedback_of(start, 0.1))


@pytest.mark.parametrize("cost", [0.5, 4.0, 1000.0])
def test_rounds_of_another_estimator_take_as_much_time(begun, monkeypatch, cost):
    """Dearer steps are fewer, cheaper ones more, but no round is shorter than the first."""
    session, start = begun
    other = Choice(qg.estimator("nocv"), ratio=0.1, cost=cost)
    monkeypatch.setattr(annealed, "choose", lambda *_, **__: other)
    state = SOLVER.init(session, start)._replace(length=1000, pace=1e-3)
    after = SOLVER._probed(session, state, start.q)
    assert after.probed
    assert after.estimator is other.estimator
    assert after.pace == pytest.approx(cost * state.pace)
    assert after.length == max(SOLVER.length, 1000 / cost)
