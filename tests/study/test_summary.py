"""Targets, arrivals and plateaus do not hang on one lucky evaluation."""

import math

import numpy as np
import pytest

from quietgrad.study.clock import Clock, clock_of, with_timing
from quietgrad.study.jobs import configuration
from quietgrad.study.plateau import late_elbo, on_plateau
from quietgrad.study.records import Cell, Record
from quietgrad.study.summary import (
    best_elbo,
    late_variance_ratio,
    settled,
    smoothed,
    summarise,
    time_to_target,
)


def record(elbos, label="nocv", rep=0, *, status="done", ratio=None, task="t", method="sgd", **outcome):
    steps = 10.0 * np.arange(len(elbos))
    columns = {
        "step": steps,
        "seconds": steps / 100,
        "elbo": np.asarray(elbos, float),
        "variance_ratio": np.full(len(elbos), math.nan) if ratio is None else np.asarray(ratio, float),
    }
    outcome = {"elbo": elbos[-1] if len(elbos) else math.nan, **outcome}
    draws = 10 if method == "sgd" else None
    cell = Cell(task, "f", label, label, draws, rep, 100, 0.01, method=method)
    return Record(cell, status, "", columns, outcome, {}, 1)


def test_settled_is_the_second_best_of_the_last_three():
    elbo = np.array([-9.0, -5.0, 3.0, -4.0, math.nan, -3.0, -3.5])
    assert list(settled(elbo)) == [-9, -9, -5, -4, -4, -4, -3.5]
    assert list(settled(np.array([]))) == []


def test_smoothed_skips_what_is_not_finite():
    assert np.isnan(smoothed(np.array([math.nan, 1.0]))[0])
    np.testing.assert_allclose(smoothed(np.array([1.0, math.inf, 3.0]), 0.5), [1, 1, 2])


def test_the_best_is_what_anyone_ends_with_and_not_a_single_lucky_value():
    records = [record([-9] + [0] * 39), record([-9, 50] + [-9] * 38, "stl"), record([-2] * 40, task="u")]
    answer = record([-1] * 3, "auto", method="auto", elbo=0.5)
    assert best_elbo(records) == {("t", "f"): 0, ("u", "f"): -2}
    assert best_elbo([*records, record([9] * 9, status="timeout"), answer])["t", "f"] == 0.5


def test_arrivals_are_held():
    fast, slow = record([-9, -0.5, -0.5] + [0] * 30), record([-9, -0.5, -9, -9, -9, -9], "stl")
    arrived, never = time_to_target([fast, slow])
    assert (arrived.best, arrived.target) == (0, -1)
    assert (arrived.steps, arrived.seconds) == (10, 0.1)
    assert (never.steps, never.seconds) == (None, None)
    assert time_to_target([fast], nats=10.0)[0].steps == 0


def test_a_run_that_does_not_stay_has_not_arrived():
    best = record([0] * 60, "auto", method="auto")
    back = record([-9] * 10 + [0] * 20 + [-9] * 10 + [0] * 20)
    gone = record([-9] * 10 + [0] * 40 + [-9] * 10, "stl")
    noisy = record([-9] * 10 + [0, 0, -2, 0] * 10, "rqmc")
    arrivals = {a.record.cell.label: a.steps for a in time_to_target([best, back, gone, noisy])}
    assert arrivals["nocv"] == 400
    assert arrivals["stl"] is None
    # Single readings below the mark are noise.
    assert arrivals["rqmc"] == 100


def test_a_run_that_ends_below_the_mark_by_its_mean_has_not_arrived():
    """Bursts: every window of five has its median at the mark, and the mean of the end is below it."""
    best = record([0] * 60, "auto", method="auto")
    burst = [*[0] * 57, -30, 0, 0]
    once = [*[0] * 30, -30, *[0] * 29]
    arrivals = time_to_target([best, record(burst), record(once, "stl")])
    assert late_elbo(arrivals[1].record) < arrivals[1].target
    assert arrivals[1].steps is None
    # One burst on the way is noise.
    assert arrivals[2].steps == 0


def test_an_arrival_counted_fifty_nats_early_is_seen():
    climb = record(np.concatenate([np.arange(-200.0, 0.0), np.zeros(40)]))
    (arrived,) = time_to_target([climb])
    assert arrived.steps == 10 * 199


def test_a_method_may_arrive_with_its_answer():
    slow = record([0] * 40)
    auto = record([-9, -5, -0.3], "auto", method="auto", elbo=-0.2)
    assert time_to_target([slow, auto])[1].steps == 20
    worse = record([-9, -5, -0.3], "auto", method="auto", elbo=-4)
    assert time_to_target([slow, worse])[1].steps is None


def test_rows_count_those_who_never_arrive_as_late():
    runs = [
        record([0] * 5, rep=0, ratio=[1, math.nan, math.nan, math.nan, 0.5]),
        record([-9, 0, 0, 0, 0], rep=1, ratio=[1, math.nan, math.nan, math.nan, 0.3]),
        record([-9] * 5, rep=2),
    ]
    (row,) = summarise([*runs, record([], rep=3, status="failed")])
    assert (row.reps, row.arrived, row.elbo, row.steps) == (3, 2, 0, 40)
    assert (row.steps_to_target, row.seconds_to_target) == (10, pytest.approx(0.1))
    assert row.variance_ratio == pytest.approx(0.4)
    assert row.step_seconds == pytest.approx(0.01)
    never = summarise([runs[0], record([-9] * 5, "stl")])[1]
    assert (never.seconds_to_target, never.steps_to_target, never.gap) == (None, None, 8)
    assert never.timed


def test_untimed_rows_have_steps_and_no_seconds():
    beside = record([-9, 0, 0, 0, 0], timed=False)
    (row,) = summarise([beside])
    assert (row.steps_to_target, row.seconds_to_target, row.timed) == (10, None, False)
    assert clock_of(beside) is Clock.NONE
    times = {configuration(beside.cell): (0.02, 0.03, 0.07)}
    (timed,) = with_timing([beside], times)
    assert clock_of(timed) is Clock.TIMING_PASS
    (row,) = summarise([timed])
    # The median round, times the steps.
    assert (row.seconds_to_target, row.seconds) == (pytest.approx(0.3), pytest.approx(1.2))
    own = record([-9, 0, 0, 0, 0])
    assert with_timing([own], times) == [own]


def test_a_plateau_is_where_the_last_tenth_does_not_rise():
    rng = np.random.default_rng(0)
    flat = np.concatenate([np.linspace(-500, 0, 50), np.zeros(50)])
    assert on_plateau(record(flat))
    assert on_plateau(record(flat + 3 * rng.standard_normal(100)))
    # A tenth of the run, ten evaluations, gains 0.6 nats; or 0.3.
    assert not on_plateau(record(0.06 * np.arange(100)))
    assert on_plateau(record(0.03 * np.arange(100)))
    assert not on_plateau(record(-1200 + 5.0 * np.arange(100)))
    # Noise hides a rise that is smaller than its standard errors, and not a larger one.
    noisy = 3 * rng.standard_normal(100)
    assert on_plateau(record(0.1 * np.arange(100) + noisy))
    assert not on_plateau(record(2.0 * np.arange(100) + noisy))
    # One wild value neither makes nor hides a rise.
    wild = np.where(np.arange(100) == 95, -1e6, 1.0 * np.arange(100))
    assert not on_plateau(record(wild))
    assert not on_plateau(record([0] * 9))
    assert not on_plateau(record([0] * 100, fit_status="non-finite"))
    assert on_plateau(record([0], method="auto", fit_status="converged"))
    assert not on_plateau(record([0] * 100, method="auto", fit_status="budget"))


def test_late_elbo_is_the_mean_of_the_last_tenth():
    assert late_elbo(record([-9.0] * 90 + [1.0, 3.0] * 5)) == 2
    assert late_elbo(record([math.nan, -1, -2, -3, math.nan])) == -2
    assert math.isnan(late_elbo(record([math.nan])))


def test_late_variance_ratio_looks_at_the_last_third():
    ratio = [9.0, 9, 9, 9, 0.3, math.nan, 0.1]
    assert late_variance_ratio(record([0] * 7, ratio=ratio)) == pytest.approx(0.2)
    assert math.isnan(late_variance_ratio(record([0] * 7)))
    assert math.isnan(late_variance_ratio(record([])))
