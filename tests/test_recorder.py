"""The recorder: what it keeps, when it ends a fit, and what it makes of a method's claims."""

from pathlib import Path

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from test_clock import Hands

import quietgrad as qg
from quietgrad.estimators import AbstractEstimator
from quietgrad.evaluation.elbo_terms import ElboTerms, affordable_pairs, paired_difference
from quietgrad.evaluation.points import Points
from quietgrad.session import Candidate, Ended, Evaluation, Problem, Recorder
from quietgrad.session.checkpoint import Checkpoint, Stored, checkpoint_of
from quietgrad.session.clock import OPTIMISE, Clock
from quietgrad.session.endings import Evidence, compare, verify_status
from quietgrad.session.problem import CAREFUL

TARGET = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
START = qg.MeanField(jnp.full(2, 3.0), jnp.zeros(2))
BETTER = qg.MeanField(jnp.full(2, 1.0), jnp.zeros(2))
BEST = qg.MeanField(jnp.zeros(2), jnp.zeros(2))
# Others have the width of the posterior, and so the same term at every pair.
WIDE = qg.MeanField(jnp.zeros(2), jnp.full(2, 0.5))


def recorder(**settings):
    return Recorder(Problem(TARGET, START), key=jr.key(0), **settings)


def terms(values, mean=0.0, std=1.0):
    return ElboTerms(np.asarray(values, float), np.full(2, mean), np.full(2, std), 0)


def test_a_worse_answer_is_never_kept():
    session = recorder()
    for step, q in enumerate([START, BEST, BETTER]):
        session.evaluate(q, step)
    assert session.answer.q is BEST
    assert session.best.q is BEST
    assert list(session.history.column("step")) == [0, 1, 2]


def test_the_same_draws_judge_everyone_and_differ_from_those_of_the_end():
    first, second = recorder(), recorder()
    np.testing.assert_array_equal(first.terms(WIDE).values, second.terms(WIDE).values)
    assert not np.allclose(first.terms(WIDE).values, first.final_terms(WIDE).values[:64])


def test_what_is_shown_is_judged_by_draws_that_decide_nothing():
    session = recorder(evaluation=Evaluation(draws=128, final_draws=128, shown_draws=128))
    evaluators = session.evaluators
    assert evaluators.shown is not None
    three = [each.terms(WIDE).values for each in (evaluators.shown, session.evaluator, evaluators.final)]
    assert np.unique(three).size == 3 * 64


@pytest.mark.parametrize("given", [False, True], ids=["by name", "given"])
def test_a_simpler_solution_is_returned_as_a_member_of_the_family_if_it_is_better(given):
    """As where a fit ends before it has left the mean-field family: its start was evaluated first."""
    start = qg.FullRank.unit(2, BEST.dtype)
    session = Recorder(Problem(TARGET, start, start_given=given), key=jr.key(0))
    far, near = (start.for_quadratic(np.full(2, place), np.eye(2)) for place in (3.0, 0.5))
    session.evaluate(far, 0)
    assert session.answer.q is far
    simpler = session.choose(session.evaluate(BETTER, 1))
    assert isinstance(session.answer.q, qg.FullRank)
    np.testing.assert_allclose(session.answer.terms.values, simpler.terms.values, rtol=1e-12)
    session.evaluate(near, 2)
    assert session.answer.q is near
    session.evaluate(BEST, 3)
    np.testing.assert_allclose(session.answer.q.mean(), 0.0, atol=1e-12)
    assert session.answer.step == 3
    session.evaluate(near, 4)
    assert session.answer.step == 3


@pytest.mark.parametrize("off", [0.1, 3.0])
@pytest.mark.parametrize("given", [False, True], ids=["by name", "given"])
def test_a_method_that_ended_below_a_simpler_solution_has_not_converged(given, off):
    """It is that solution which is returned. Two means that are off by m cost m^2 nats."""
    unit = qg.FullRank.unit(2, BEST.dtype)
    start, end = (unit.for_quadratic(np.full(2, place), np.eye(2)) for place in (4.0, off))
    session = Recorder(Problem(TARGET, start, start_given=given), key=jr.key(0))
    session.use_points(Points(TARGET, unit.dtype))
    for step, q in enumerate((start, BEST, end)):
        session.evaluate(q, step)
    answer = session.answer
    np.testing.assert_allclose(answer.q.mean(), 0.0, atol=1e-12)
    final = session.final_terms(answer.q)
    status, hint = session.verified_status(qg.Status.CONVERGED, "well", final)
    assert status is (qg.Status.STALLED if off > 1 else qg.Status.CONVERGED)
    assert hint == "well" or "9.00 ± 0.00 nats below the MeanField solution" in hint


def test_the_last_answer_is_one_of_the_family_that_was_asked_for():
    """Where the last one is preferred, too: rows differ between draws, and a fit ends on its way."""
    start = qg.FullRank.unit(2, BEST.dtype)
    session = Recorder(Problem(TARGET, start), key=jr.key(0))
    session.prefer_last()
    session.evaluate(start.for_quadratic(np.full(2, 3.0), np.eye(2)), 0)
    session.evaluate(BETTER, 1)
    simpler = session.evaluate(BEST, 2)
    assert isinstance(session.answer.q, qg.FullRank)
    np.testing.assert_allclose(session.answer.terms.values, simpler.terms.values, rtol=1e-12)


@pytest.mark.parametrize("given", [False, True], ids=["by name", "given"])
def test_a_family_that_cannot_hold_a_simpler_solution_returns_its_own(given):
    """The given start, made new, would be another answer with another step."""
    flow = qg.RealNVP.init(2, key=jr.key(1))
    session = Recorder(Problem(TARGET, flow, start_given=given), key=jr.key(0))
    assert not flow.contains(BEST)
    session.record(Candidate(flow, 0, terms([-3.0, -3.1])))
    session.record(Candidate(BEST, 1, terms([0.0, 0.1])))
    assert session.answer.q is flow
    assert session.answer.step == 0
    other = qg.RealNVP.init(2, key=jr.key(2))
    session.record(Candidate(other, 2, terms([-2.0, -2.1])))
    assert session.answer.q is other


def test_the_last_answer_is_preferred_only_if_none_is_clearly_better():
    session = recorder()
    session.prefer_last()
    rng = np.random.default_rng(0)
    noise = rng.normal(size=64)
    session.record(Candidate(START, 0, terms(noise)))
    session.record(Candidate(BETTER, 1, terms(noise + 1.0)))
    # Within two standard errors of the one before: 1/8 is the error of a mean of 64.
    session.record(Candidate(BEST, 2, terms(1.0 - 0.1 + rng.normal(size=64))))
    assert session.answer.q is BEST
    session.record(Candidate(START, 3, terms(noise - 5.0)))
    assert session.answer.q is BETTER


def test_paired_differences_have_the_error_of_the_difference():
    noise = np.random.default_rng(0).normal(size=100)
    gain, error = paired_difference(terms(100 * noise + 0.5), terms(100 * noise))
    assert gain == pytest.approx(0.5)
    assert error < 1e-10
    assert paired_difference(terms([np.nan, 1.0]), terms([0.0, 0.0]))[0] == -np.inf
    assert paired_difference(terms([0.0, 1.0]), terms([-np.inf, 0.0]))[0] == np.inf


def test_limits_end_a_fit_at_the_next_look():
    hands = Hands()
    session = recorder(seconds=10.0, clock=Clock(hands))
    session.record(Candidate(START, 0, terms([0.0, 0.1])))
    hands.now += 11
    with pytest.raises(Ended) as ended:
        session.record(Candidate(BEST, 1, terms([1.0, 1.1])))
    assert ended.value.status is qg.Status.BUDGET
    assert session.answer.q is BEST


def test_a_limit_of_optimisation_does_not_count_the_rest():
    hands = Hands()
    session = recorder(optimise_seconds=10.0, clock=Clock(hands))
    hands.now += 100
    assert session.left() == 10
    with session.clock.phase(OPTIMISE):
        hands.now += 9
        session.check()
        hands.now += 1
    with pytest.raises(Ended):
        session.check()


def test_the_nearer_of_two_limits_counts():
    for both in ({"seconds": 3.0, "optimise_seconds": 10.0}, {"seconds": 10.0, "optimise_seconds": 3.0}):
        assert recorder(clock=Clock(Hands()), **both).left() == 3.0


def test_bad_draws_on_the_way_make_the_end_more_careful():
    """They are remembered whatever is seen after them: rare ones may be left that few draws miss."""
    session = recorder()
    session.record(Candidate(START, 0, terms([0.0, -np.inf])._replace(bad=1)))
    session.record(Candidate(BEST, 1, terms([1.0, 1.1])))
    usual = recorder().final_terms(BEST).values.size
    assert session.final_terms(BEST).values.size == CAREFUL * usual


@pytest.mark.parametrize("pairs", [2, 3, 7])
def test_an_elbo_is_judged_with_as_many_draws_as_were_asked_for(pairs):
    """Two pairs, which have an error, are the least; one draw more than pairs is left out."""
    asked = dict.fromkeys(("draws", "final_draws", "shown_draws"), 2 * pairs)
    evaluators = recorder(evaluation=Evaluation(**asked, share=None)).evaluators
    assert evaluators.shown is not None
    for each in (evaluators.on_the_way, evaluators.final, evaluators.shown):
        assert each.terms(WIDE).values.size == pairs
    odd = recorder(evaluation=Evaluation(draws=2 * pairs + 1, final_draws=1, share=None)).evaluators
    assert odd.on_the_way.pairs == pairs
    assert odd.final.pairs == 2
    assert np.isfinite(odd.final.terms(WIDE).error)


def test_evaluation_keeps_to_its_share():
    hands = Hands()
    session = recorder(evaluation=Evaluation(share=0.2), clock=Clock(hands))
    judged = session.evaluator.terms

    def slow(q):
        hands.now += 10
        return judged(q)

    session.evaluator.terms = slow
    assert session.can_evaluate()
    session.evaluate(START, 0)
    assert not session.can_evaluate()
    with session.clock.phase(OPTIMISE):
        hands.now += 99
    assert not session.can_evaluate()
    with session.clock.phase(OPTIMISE):
        hands.now += 1
    assert session.can_evaluate()
    # The next is expected to cost what the last one did, not all so far: 30 seconds of 150.
    session.evaluate(START, 1)
    with session.clock.phase(OPTIMISE):
        hands.now += 49
    assert not session.can_evaluate()
    with session.clock.phase(OPTIMISE):
        hands.now += 1
    assert session.can_evaluate()
    assert recorder(evaluation=Evaluation(share=None)).can_evaluate()


def test_many_rows_or_coordinates_get_fewer_draws_and_it_says_so():
    assert affordable_pairs(100, 2, 64) == 64
    assert affordable_pairs(100, 10**6, 64) < 64
    rows = np.zeros(2**22)
    wide = qg.Target(lambda z: -z @ z, lambda z, x: x * z[0], rows, dim=2)
    session = Recorder(Problem(wide, START), key=jr.key(0))
    shares = np.asarray(session.evaluator.rows)
    assert 0 < shares.size < wide.rows
    assert np.unique(shares).size == shares.size
    # From all over the rows, which may be sorted: the mean is within five standard errors of the middle.
    assert abs(shares.mean() - wide.rows / 2) < 5 * wide.rows / np.sqrt(12 * shares.size)
    assert "rows of its own" in session.evaluation_words()
    assert session.evaluators.final.target is wide


def test_a_method_that_never_improves_cannot_say_converged():
    session = recorder()
    session.evaluate(START, 0)
    status, hint = session.verified_status(qg.Status.CONVERGED, "done", session.final_terms(START))
    assert status is qg.Status.STALLED
    assert "start" in hint


def test_a_start_that_fresh_draws_find_better_is_better():
    """An answer that gains next to nothing at the draws that chose it is compared anew."""
    noise, leaps = np.random.default_rng(0).normal(size=64), np.tile([0.1, -0.1], 32)
    start, answer = Candidate(START, 0, terms(noise)), Candidate(BEST, 1, terms(noise + leaps + 0.001))
    for gain in (5.0, -5.0):
        floor = compare(start, answer, lambda q, gain=gain: terms(noise + gain * (q is START)))
        assert floor.start_is_better == (gain > 0)
        assert floor.below.nats == pytest.approx(gain)


def test_bad_draws_of_an_answer_are_told_whatever_the_method_claims():
    session = recorder()
    session.evaluate(START, 0)
    answer = session.evaluate(BEST, 1)
    known = Evidence(session.answers.start, answer, answer, lambda q: np.zeros((4, 2)), session.probe)
    final = terms([0.0, -np.inf, 0.0, 0.0])._replace(bad=2)
    status, hint = verify_status(Problem(TARGET, START), qg.Status.CONVERGED, "", final, known)
    assert status is qg.Status.NON_FINITE
    assert "NaN or infinite at 25.0% of the draws" in hint


@pytest.mark.parametrize("claimed", [s for s in qg.Status if not s.failed])
def test_a_density_that_is_nowhere_a_number_is_the_reason_of_any_ending(claimed):
    """Out of time or interrupted before the method has seen it, too; the hint names the culprit."""
    target = qg.Target(lambda z: -0.5 * z @ z, lambda z, x: jnp.nan * x * z[0], np.ones(3), dim=2)
    problem = Problem(target, START)
    session = Recorder(problem, key=jr.key(0))
    start = session.evaluate(START, 0)
    known = Evidence(start, start, start, session.draws_of, session.probe)
    final = session.final_terms(START)
    status, hint = verify_status(problem, claimed, "", final, known)
    assert status is qg.Status.NON_FINITE
    assert "log likelihood" in hint


def test_an_answer_that_has_gone_far_ends_a_fit_only_where_the_density_does_not():
    """As soon as it is recorded, and long before the method's own end."""
    gone = qg.MeanField(jnp.array([1e6, 0.0]), jnp.array([9.0, 0.0]))
    recorded = recorder()
    recorded.evaluate(START, 0)
    recorded.evaluate(gone, 1)
    flat = qg.Target.from_logdensity(lambda z: -0.5 * z[1] ** 2, dim=2)
    session = Recorder(Problem(flat, START), key=jr.key(0))
    session.evaluate(START, 0)
    session.evaluate(BEST, 1)
    with pytest.raises(Ended) as ended:
        session.evaluate(gone, 2)
    assert ended.value.status is qg.Status.UNBOUNDED
    assert "coordinate 0" in ended.value.hint


@pytest.mark.parametrize(("value", "share"), [(np.nan, 1), (np.inf, 1), (np.nan, 3), (-np.inf, 1)])
def test_draws_where_numbers_end_are_told_and_left_out(value, share):
    """Where they are at most one of a hundred, and the density is not zero there."""
    session = recorder()
    session.evaluate(START, 0)
    answer = session.evaluate(BEST, 1)
    known = Evidence(session.answers.start, answer, answer, lambda q: np.zeros((4, 2)), session.probe)
    values = np.random.default_rng(0).normal(answer.terms.elbo, 0.1, 100)
    final = terms([*values, *[value] * share])._replace(bad=share if share == 1 else 2 * share)
    status, hint = verify_status(Problem(TARGET, START), qg.Status.CONVERGED, "done", final, known)
    if share == 1 and value != -np.inf:
        assert status is qg.Status.CONVERGED
        assert "at 0.50% of q's draws the log density is not a number" in hint
        assert f"{np.mean(values):.2f}" in hint
        assert final.resolved(0.01).elbo == pytest.approx(np.mean(values))
    else:
        assert status is qg.Status.NON_FINITE
        assert final.resolved(0.01) is final


def test_a_recorder_is_restored_to_the_moment_of_its_snapshot():
    """And not to what came after it, which is made again."""
    hands = Hands()
    session = recorder(clock=Clock(hands))
    judged = session.evaluator.terms
    session.evaluator.terms = lambda q: (setattr(hands, "now", hands.now + 7), judged(q))[1]
    session.evaluate(START, 0)
    session.evaluate(BETTER, 3)
    then, seconds = Stored(session).snapshot(), session.clock.total
    session.evaluate(BEST, 5)
    session.limits.out_of_time = True
    record = Stored(session).record()
    assert (seconds, record["clock"]["total"], record["out_of_time"]) == (14, 21, True)
    stored = Checkpoint(Path("nowhere"), {}, {}, record=record)
    again = recorder(clock=Clock(Hands()), checkpoint=stored)
    Stored(again).restore(then)
    assert list(again.history.column("step")) == [0, 3]
    assert again.answer.q is BETTER
    assert (again.pace.count, again.pace.last, again.clock.total) == (2, 7, 21)


@pytest.mark.parametrize(
    "method",
    [qg.Sgd(qg.estimator("nocv", draws=3)), qg.Sgd("auto"), qg.Saa()],
    ids=["given", "auto", "none"],
)
def test_a_checkpoint_has_a_recorder_s_estimator_whether_the_method_was_given_one_or_not(
    method, tmp_path
):
    """And the state of the stage that it was in."""

    def opened():
        return checkpoint_of(tmp_path, Problem(TARGET, START), method, None, key=jr.key(0))

    given = getattr(method, "estimator", None)
    given = given if isinstance(given, AbstractEstimator) else None
    session = recorder(checkpoint=opened())
    session.estimator = given or qg.estimator("quiet", draws=4)
    session.evaluate(START, 0)
    session.slot("loop").store("state")
    again = recorder(checkpoint=opened())
    assert again.slot("loop").stored == "state"
    assert again.estimator == session.estimator


@pytest.mark.parametrize(("deep", "status"), [(4, qg.Status.CONVERGED), (40, qg.Status.STALLED)])
def test_a_few_draws_without_a_density_do_not_unsay_an_ending_but_many_do(deep, status):
    """The error of the ELBO is all theirs; of 1,000 pairs, ten may be without one."""
    session = recorder()
    session.evaluate(START, 0)
    answer = session.evaluate(BEST, 1)
    known = Evidence(session.answers.start, answer, answer, lambda q: np.zeros((4, 2)), session.probe)
    values = np.random.default_rng(0).normal(size=1000)
    values[:deep] = -1e6
    final = terms(values)
    assert final.error > 1e3
    found, hint = verify_status(Problem(TARGET, START), qg.Status.CONVERGED, "done", final, known)
    assert found is status
    assert ("0.40% of q's draws" in hint) == (status is qg.Status.CONVERGED)


def test_a_callback_adds_columns_and_may_be_silent():
    seen = []

    def callback(moment):
        seen.append((moment.step, moment.estimator_state))
        return {"first": float(moment.q.loc[0])} if moment.step else None

    session = recorder(callback=callback)
    session.evaluate(START, 0)
    session.evaluate(BEST, 4, state="state")
    assert seen == [(0, None), (4, "state")]
    first = session.history.arrays()["first"]
    assert np.isnan(first[0])
    assert first[1] == 0


def test_streams_of_random_numbers_are_told_apart_by_name_and_key():
    session = recorder()
    words = {name: tuple(np.asarray(session.seed(name))) for name in ("draws", "rows", "judge")}
    assert len(set(words.values())) == 3
    assert tuple(np.asarray(recorder().seed("draws"))) == words["draws"]
    other = Recorder(Problem(TARGET, START), key=jr.key(1))
    assert tuple(np.asarray(other.seed("draws"))) != words["draws"]
