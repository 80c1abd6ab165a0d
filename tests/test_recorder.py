"""The recorder: what it keeps, when it ends a fit, and what it makes of a method's claims."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from test_clock import Hands

import quietgrad as qg
from quietgrad.evaluation.judging import Terms, affordable_pairs, paired_difference
from quietgrad.session import Candidate, Ended, Evaluation, Problem, Recorder
from quietgrad.session.clock import OPTIMISE, Clock
from quietgrad.session.endings import Evidence, verify_status

TARGET = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
START = qg.MeanField(jnp.full(2, 3.0), jnp.zeros(2))
BETTER = qg.MeanField(jnp.full(2, 1.0), jnp.zeros(2))
BEST = qg.MeanField(jnp.zeros(2), jnp.zeros(2))


def recorder(**settings):
    return Recorder(Problem(TARGET, START), key=jr.key(0), **settings)


def terms(values, mean=0.0, std=1.0):
    return Terms(np.asarray(values, float), np.full(2, mean), np.full(2, std), 0)


def test_a_worse_answer_is_never_kept():
    book = recorder()
    for step, q in enumerate([START, BEST, BETTER]):
        book.evaluate(q, step)
    assert book.answer.q is BEST
    assert book.best.q is BEST
    assert list(book.history.column("step")) == [0, 1, 2]


def test_the_same_draws_judge_everyone_and_differ_from_those_of_the_end():
    first, second = recorder(), recorder()
    np.testing.assert_array_equal(first.terms(BEST).values, second.terms(BEST).values)
    assert not np.array_equal(first.terms(BEST).values, first.final_terms(BEST).values[:64])


def test_the_last_answer_is_preferred_only_if_none_is_clearly_better():
    book = recorder()
    book.prefer_last()
    rng = np.random.default_rng(0)
    noise = rng.normal(size=64)
    book.record(Candidate(START, 0, terms(noise)))
    book.record(Candidate(BETTER, 1, terms(noise + 1.0)))
    # Within two standard errors of the one before: 1/8 is the error of a mean of 64.
    book.record(Candidate(BEST, 2, terms(1.0 - 0.1 + rng.normal(size=64))))
    assert book.answer.q is BEST
    book.record(Candidate(START, 3, terms(noise - 5.0)))
    assert book.answer.q is BETTER


def test_paired_differences_have_the_error_of_the_difference():
    noise = np.random.default_rng(0).normal(size=100)
    gain, error = paired_difference(terms(100 * noise + 0.5), terms(100 * noise))
    assert gain == pytest.approx(0.5)
    assert error < 1e-10
    assert paired_difference(terms([np.nan, 1.0]), terms([0.0, 0.0]))[0] == -np.inf
    assert paired_difference(terms([0.0, 1.0]), terms([-np.inf, 0.0]))[0] == np.inf


def test_limits_end_a_fit_at_the_next_look():
    hands = Hands()
    book = recorder(seconds=10.0, clock=Clock(hands))
    book.record(Candidate(START, 0, terms([0.0, 0.1])))
    hands.now += 11
    with pytest.raises(Ended) as ended:
        book.record(Candidate(BEST, 1, terms([1.0, 1.1])))
    assert ended.value.status is qg.Status.BUDGET
    assert book.answer.q is BEST


def test_a_limit_of_optimisation_does_not_count_the_rest():
    hands = Hands()
    book = recorder(optimise_seconds=10.0, clock=Clock(hands))
    hands.now += 100
    assert book.left() == 10
    with book.clock.phase(OPTIMISE):
        hands.now += 9
        book.check()
        hands.now += 1
    with pytest.raises(Ended):
        book.check()


def test_evaluation_keeps_to_its_share():
    hands = Hands()
    book = recorder(evaluation=Evaluation(share=0.2), clock=Clock(hands))
    judged = book.judge.terms

    def slow(q):
        hands.now += 10
        return judged(q)

    book.judge.terms = slow
    assert book.can_evaluate()
    book.evaluate(START, 0)
    assert not book.can_evaluate()
    with book.clock.phase(OPTIMISE):
        hands.now += 99
    assert not book.can_evaluate()
    with book.clock.phase(OPTIMISE):
        hands.now += 1
    assert book.can_evaluate()
    assert recorder(evaluation=Evaluation(share=None)).can_evaluate()


def test_many_rows_or_coordinates_get_fewer_draws_and_it_says_so():
    assert affordable_pairs(100, 2, 64) == 64
    assert affordable_pairs(100, 10**6, 64) < 64
    rows = np.zeros(2**22)
    wide = qg.Target(lambda z: -z @ z, lambda z, x: x * z[0], rows, dim=2)
    book = Recorder(Problem(wide, START), key=jr.key(0))
    shares = np.asarray(book.judge.rows)
    assert 0 < shares.size < wide.rows
    assert np.unique(shares).size == shares.size
    assert "rows of its own" in book.evaluation_words()
    assert book.judges.final.target is wide


def test_a_method_that_never_improves_cannot_say_converged():
    book = recorder()
    book.evaluate(START, 0)
    status, hint = book.true_ending(qg.Status.CONVERGED, "done", book.final_terms(START))
    assert status is qg.Status.STALLED
    assert "start" in hint


def test_bad_draws_of_an_answer_are_told_whatever_the_method_claims():
    book = recorder()
    book.evaluate(START, 0)
    answer = book.evaluate(BEST, 1)
    known = Evidence(book.answers.start, answer, answer, lambda q: np.zeros((4, 2)), book.probe)
    final = terms([0.0, -np.inf, 0.0, 0.0])._replace(bad=2)
    status, hint = verify_status(Problem(TARGET, START), qg.Status.CONVERGED, "", final, known)
    assert status is qg.Status.NON_FINITE
    assert "NaN or infinite at 25.0% of the draws" in hint


def test_a_callback_adds_columns_and_may_be_silent():
    seen = []

    def callback(moment):
        seen.append((moment.step, moment.estimator_state))
        return {"first": float(moment.q.loc[0])} if moment.step else None

    book = recorder(callback=callback)
    book.evaluate(START, 0)
    book.evaluate(BEST, 4, state="state")
    assert seen == [(0, None), (4, "state")]
    first = book.history.arrays()["first"]
    assert np.isnan(first[0])
    assert first[1] == 0


def test_streams_of_random_numbers_are_told_apart_by_name_and_key():
    book = recorder()
    words = {name: tuple(np.asarray(book.words(name))) for name in ("draws", "rows", "judge")}
    assert len(set(words.values())) == 3
    assert tuple(np.asarray(recorder().words("draws"))) == words["draws"]
    other = Recorder(Problem(TARGET, START), key=jr.key(1))
    assert tuple(np.asarray(other.words("draws"))) != words["draws"]
