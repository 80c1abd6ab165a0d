"""The end of minibatch fits: decided by an evaluator that is precise enough, and said in nats."""

import re
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.evaluation.elbo_terms import Difference, ElboEvaluator, paired_difference
from quietgrad.session import DEFAULT, Evaluation, Problem, Recorder
from quietgrad.solvers import AbstractSolver, Step, Stop, drive

ROWS, DIM, BATCH = 20_000, 3, 50
# Comparisons may touch no more rows than steps did.
NOTICED = Evaluation(unnoticed=0)


def regression(rows=ROWS):
    """Means of rows that differ much: a likelihood on few of them says little."""
    data = np.random.default_rng(0).normal(2.0, 1.0, (rows, DIM))
    return qg.Target(
        lambda z: -0.5 * jnp.sum(z**2),
        lambda z, x: -0.5 * jnp.sum((x - z[None]) ** 2, axis=1),
        jnp.asarray(data),
        dim=DIM,
    )


def at(mean):
    return qg.MeanField(jnp.asarray(mean) * jnp.ones(DIM), jnp.full(DIM, -0.5 * np.log(ROWS)))


def recorder(key, rows=ROWS, evaluation=DEFAULT):
    return Recorder(Problem(regression(rows), at(2.0), BATCH), evaluation=evaluation, key=key)


@pytest.mark.parametrize(
    ("nats", "error", "conclusive"),
    [(0.0, 0.2, True), (0.3, 0.2, False), (2.0, 0.2, True), (-3.0, 0.2, True), (-3.0, 0.3, False)],
)
def test_a_difference_is_conclusive_where_its_error_tells(nats, error, conclusive):
    """Of a gain of half a nat: clearly more, or clearly less, where a loss counts as nothing."""
    assert Difference(nats, error).conclusive(0.5) == conclusive


def test_an_open_question_is_asked_on_all_rows_at_more_draws(key):
    session = recorder(key)
    here, there = (session.candidate(at(mean), 0) for mean in (2.0, 2.001))
    rough = paired_difference(there.terms, here.terms)
    assert session.evaluators.on_the_way.rows is not None
    assert not rough.conclusive(0.5)
    sharp = session.sharper(there, here, rough, 0.5, 10**9)
    assert sharp.conclusive(0.5)
    assert sharp.error < rough.error / 5
    # The literal form: f(z) - log q(z) on all rows at many draws of another seed.
    judge = ElboEvaluator(session.problem.whole, pairs=64, seed=session.seed("another"))
    truth = paired_difference(judge.terms(there.q, times=8), judge.terms(here.q, times=8))
    assert abs(sharp.nats - truth.nats) < 5 * np.hypot(sharp.error, truth.error) + 1e-6


def test_asking_costs_no_more_rows_than_the_steps_before(key):
    session = recorder(key, evaluation=NOTICED)
    here, there = (session.candidate(at(mean), 0) for mean in (2.0, 2.001))
    rough = paired_difference(there.terms, here.terms)
    evaluator = session.evaluators.precise
    assert evaluator is not None
    least = 2 * 2 * evaluator.pairs * ROWS // (2 * BATCH)
    assert not rough.conclusive(0.1)
    assert session.sharper(there, here, rough, 0.1, least - 1) is rough
    assert session.sharper(there, here, rough, 0.1, least) is not rough


def test_asking_that_nobody_notices_is_free(key):
    """After a single step: a few rows and coordinates are evaluated in no time."""
    session = recorder(key)
    here, there = (session.candidate(at(mean), 0) for mean in (2.0, 2.001))
    rough = paired_difference(there.terms, here.terms)
    assert not rough.conclusive(0.1)
    assert session.sharper(there, here, rough, 0.1, 1).conclusive(0.1)


class Walk(NamedTuple):
    number: int = 0


class Walker(AbstractSolver):
    """Members with these means, each after so many more iterations."""

    title: ClassVar[str] = "a walk"
    means: tuple[Any, ...]
    each: int

    def init(self, session: Any, start: Any) -> Walk:
        return Walk()

    def step(self, session: Any, state: Walk, feedback: Any) -> Step:
        number = state.number + 1
        mean = self.means[min(state.number, len(self.means) - 1)]
        return Step((at(mean),), Walk(number), self.each * number)


# Corners of a tetrahedron: equally good around the best, and equally far from each other.
CORNERS = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])


@pytest.mark.parametrize(
    ("sharp", "errors", "iterations"), [(True, 1.6, 20), (True, 1.2, 30), (False, 1.6, 30)]
)
def test_rounds_that_gain_nothing_end_a_run_where_a_gain_would_be_seen(sharp, errors, iterations, key):
    """Steps between members that are equally good, with no room for more rows. Twice the gain that
    matters must be three standard errors: 2 x 1.6 are, and 2 x 1.2 are not."""
    session = recorder(key, evaluation=NOTICED)
    best = np.sum(np.asarray(session.problem.target.data), axis=0) / (ROWS + 1)
    start, *others = (best + 1e-3 * corner for corner in CORNERS)
    start = session.evaluate(at(start), 0)
    error = max(paired_difference(session.terms(at(mean)), start.terms).error for mean in others)
    stop = Stop(gain=errors * error, patience=1, iterations=30, conclusive=True, sharp=sharp)
    run = drive(Walker(tuple(others), each=10), start, session, stop, name="walk")
    assert run.iterations == iterations
    assert run.end == ("stationary" if iterations < 30 else "exhausted")


def test_a_minibatch_fit_converges_and_says_what_remains(key):
    result = qg.fit(regression(4000), batch_size=BATCH, progress=False, key=key)
    assert result.status is qg.Status.CONVERGED, result.hint
    found = re.search(r"one twice as long at most about (\S+) nats", result.hint)
    assert found, result.hint
    assert 0 <= float(found[1]) < 2


def test_steps_that_are_used_up_are_called_rising_only_if_they_rise(key):
    """From far away the first round gains much."""
    method = qg.Auto(steps=520, fixed_draws=False)
    result = qg.fit(regression(), at(30.0), batch_size=BATCH, method=method, progress=False, key=key)
    assert result.status is qg.Status.BUDGET
    found = re.search(r"the last round gained (\S+) ± (\S+) nats", result.hint)
    assert found, result.hint
    rising = float(found[1]) > 2 * float(found[2])
    assert ("still rising" in result.hint) == rising


def test_what_is_worth_going_on_for_grows_with_coordinates_in_batches():
    """A mean that is s sds off costs s^2 / 2 nats: 1e-3 is 0.045 sds, half of what a verdict tells."""
    auto, settings = qg.Auto(), qg.Diagnostics()
    assert np.sqrt(2 * auto.gain_each_in_batches) < settings.sharp_mean / 2
