"""The one loop: what it keeps, when it stops, and that a checkpoint of it loses nothing."""

from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from sessions import session_of

import quietgrad as qg
from quietgrad.evaluation.elbo_terms import Difference
from quietgrad.session import Ended
from quietgrad.solvers import AbstractSolver, Step, Stop, drive

# The ELBO of N(m, 1) on a standard normal density is -m^2 / 2 up to a constant, whatever the draws: both
# ends of an antithetic pair cancel what is linear in them.
TARGET = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=1)


def at(mean):
    return qg.MeanField(jnp.array([float(mean)]), jnp.zeros(1))


class Walk(NamedTuple):
    number: int = 0


class Walker(AbstractSolver):
    """Proposes members with these means, one a step; None proposes nothing, a tuple several."""

    title: ClassVar[str] = "a walk"
    means: tuple[Any, ...]
    end: str | None = None

    def init(self, session, start):
        return Walk()

    def step(self, session, state, feedback):
        if state.number == len(self.means):
            return Step((), state, state.number, end=self.end or "nowhere to go")
        here = self.means[state.number]
        here = () if here is None else here if isinstance(here, tuple) else (here,)
        return Step(tuple(map(at, here)), Walk(state.number + 1), state.number + 1)


@pytest.fixture
def session():
    return session_of(TARGET, at(3))


def driven(session, means, **settings):
    stop = Stop(**{"gain": 0.01, "patience": 100} | settings)
    return drive(Walker(tuple(means)), session.evaluate(at(3), 0), session, stop, name="walk")


def mean_of(candidate):
    return float(candidate.q.loc[0])


def test_the_best_is_kept_and_every_evaluation_recorded(session):
    run = driven(session, [2, 1, 2.5, 0.5, 4])
    assert mean_of(run.best) == 0.5
    assert run.end == "nowhere to go"
    assert mean_of(session.best) == 0.5
    # The history shows what would be returned now, and so never falls.
    assert len(session.history) == 6
    assert np.all(np.diff(session.history.column("elbo")) >= 0)
    assert session.steps == run.best.step == 5


def test_the_last_is_kept_unless_it_is_clearly_worse(session):
    # Differences have no noise here: any loss is a clear one.
    assert mean_of(driven(session, [1, 2], keep="last").best) == 1
    stop = Stop(keep="last")
    best, found = session.evaluate(at(1), 0), session.evaluate(at(2), 0)
    assert stop.kept(best, found, Difference(-1.0, 0.6)) is found
    assert stop.kept(best, found, Difference(-1.0, 0.4)) is best
    # Where the draws cannot tell differences of `gain`, the later one is the better guess.
    assert Stop(gain=0.5).kept(best, found, Difference(-1.0, 0.6)) is found
    assert Stop(gain=0.7).kept(best, found, Difference(-1.0, 0.6)) is best


def test_steps_without_progress_end_it_as_stationary(session):
    run = driven(session, [2, 1, 1, 1, 0], patience=2)
    assert run.stationary
    assert run.iterations == 4
    assert mean_of(run.best) == 1


def test_progress_in_between_restores_the_patience(session):
    # 1 -> 0.9 gains 0.095 nats.
    assert driven(session, [1, 1, 0.9, 0.9, 0], patience=2, gain=0.05).end == "nowhere to go"
    assert driven(session, [1, 1, 0.9, 0.9, 0], patience=2, gain=0.2).iterations == 3


def test_no_run_is_stationary_before_its_least_iterations(session):
    assert driven(session, [3, 3, 3, 3, 2], patience=1, least=4).iterations == 4


def test_iterations_bound_a_run(session):
    run = driven(session, [2, 1, 0], iterations=2)
    assert run.end == "exhausted"
    assert mean_of(run.best) == 1


def test_a_step_may_propose_nothing_or_several(session):
    run = driven(session, [None, (2, 1, 1.5), None])
    assert mean_of(run.best) == 1
    assert len(session.history) == 2
    assert session.steps == 3
    assert run.feedback is not None
    assert [mean_of(c) for c in run.feedback.candidates] == [2, 1, 1.5]
    assert run.feedback.change.nats == pytest.approx((9 - 1) / 2)


def test_the_history_shows_an_incumbent_that_is_better(session):
    """That is what would be returned."""
    incumbent = session.evaluate(at(0), 0)
    run = driven(session, [2.999, 2.0, 0.5], incumbent=incumbent)
    assert run.end == "nowhere to go"
    assert np.ptp(session.history.column("elbo")[2:]) == 0


@pytest.mark.parametrize(
    ("change", "impatient", "conclusive"),
    [
        (Difference(1.0, 0.1), True, True),
        # The draws cannot tell: one takes it for nothing, the other for no proof.
        (Difference(1.0, 0.4), False, True),
        (Difference(-0.1, 0.4), False, True),
        (Difference(0.1, 0.1), False, False),
        # A clear loss is taken back, and says nothing of what is left to gain.
        (Difference(-3.0, 0.1), False, True),
    ],
)
def test_what_counts_as_progress(change, impatient, conclusive):
    assert Stop(gain=0.5).progressed(change) is impatient
    assert Stop(gain=0.5, conclusive=True).progressed(change) is conclusive


@pytest.mark.parametrize(
    ("change", "before", "ahead"),
    [
        # At most 4 + 2: a ratio of 6 to 10, and again.
        (Difference(4.0, 1.0), Difference(12.0, 1.0), 3.6),
        # Rounds twice as long gain half at least.
        (Difference(2.0, 0.5), Difference(12.0, 1.0), 1.5),
        # Gains that do not fall are expected again, and a loss is no gain.
        (Difference(4.0, 1.0), Difference(5.0, 1.0), 6.0),
        (Difference(-4.0, 1.0), Difference(5.0, 1.0), 2.0 * 2.0 / 3.0),
        # From afar, after a loss, or at the first step nothing is known.
        (Difference(4.0, 1.0), Difference(1000.0, 10.0), 6.0),
        (Difference(4.0, 1.0), Difference(-12.0, 1.0), 6.0),
        (Difference(4.0, 1.0), None, 6.0),
    ],
)
def test_gains_that_fall_are_expected_to_fall_further(change, before, ahead):
    assert np.isclose(Stop(falling=True).next_gain(change, before), ahead)
    most = max(change.nats, 0.0) + 2 * change.error
    assert np.isclose(Stop().next_gain(change, before), most)
    for gain in (0.9 * ahead, 1.1 * ahead):
        stop = Stop(gain=gain, falling=True, conclusive=True)
        assert stop.progressed(change, before) == (gain < ahead or change.clearly_below())


def test_a_rule_reads_the_rows_of_the_history(session):
    rule = qg.Reached(-2.0, column="elbo")
    assert driven(session, [2.5, 2, 1, 0], rule=rule, obey=True).end == "reached"
    assert driven(session, [2.5, 2, 1, 0], rule=rule).end == "nowhere to go"


def test_limits_are_checked_before_every_step(session):
    session.interrupt()
    with pytest.raises(Ended):
        driven(session, [2, 1])


@pytest.mark.parametrize(
    ("nats", "error", "above", "below"), [(1.0, 0.4, True, False), (1.0, 0.6, False, False)]
)
def test_one_convention_of_significance(nats, error, above, below):
    assert Difference(nats, error).clearly_above() is above
    assert Difference(-nats, error).clearly_below() is above
    assert Difference(nats, error).clearly_below() is below
    assert Difference(nats, error).clearly_above(0.3) is False
    assert Difference(-5.0, 0.1).non_negative.clearly_below(0.3)
