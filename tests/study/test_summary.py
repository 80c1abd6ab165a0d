"""Targets and arrivals do not hang on one lucky evaluation."""

import math

import numpy as np
import pytest

from quietgrad.study.records import Cell, Record
from quietgrad.study.summary import (
    best_elbo,
    late_variance_ratio,
    settled,
    smoothed,
    summarise,
    time_to_target,
)


def record(elbo, label="nocv", rep=0, *, status="done", ratio=None, task="t", draws=10):
    steps = 10.0 * np.arange(len(elbo))
    columns = {
        "step": steps,
        "seconds": steps / 100,
        "elbo": np.asarray(elbo, float),
        "variance_ratio": np.full(len(elbo), math.nan) if ratio is None else np.asarray(ratio, float),
    }
    outcome = {"elbo": elbo[-1] if len(elbo) else math.nan}
    cell = Cell(task, "f", label, label, draws, rep, 100, 0.01)
    return Record(cell, status, "", columns, outcome, {}, 1)


def test_settled_is_the_second_best_of_the_last_three():
    elbo = np.array([-9.0, -5.0, 3.0, -4.0, math.nan, -3.0, -3.5])
    assert list(settled(elbo)) == [-9, -9, -5, -4, -4, -4, -3.5]
    assert list(settled(np.array([]))) == []


def test_smoothed_skips_what_is_not_finite():
    assert np.isnan(smoothed(np.array([math.nan, 1.0]))[0])
    np.testing.assert_allclose(smoothed(np.array([1.0, math.inf, 3.0]), 0.5), [1, 1, 2])


def test_the_best_is_by_anyone_and_not_a_single_lucky_value():
    records = [record([-9, -1, 0, 0]), record([-9, 50, -9, -9], "stl"), record([-2] * 4, task="u")]
    assert best_elbo([*records, record([9, 9, 9], status="timeout")]) == {("t", "f"): 0, ("u", "f"): -2}


def test_arrivals_need_two_good_evaluations():
    fast, slow = record([-9, -0.5, -0.5, 0, 0]), record([-9, -0.5, -9, -8, -7], "stl")
    arrived, never = time_to_target([fast, slow])
    assert (arrived.best, arrived.target) == (0, -1)
    assert (arrived.steps, arrived.seconds) == (20, 0.2)
    assert (never.steps, never.seconds) == (None, None)
    assert time_to_target([fast], nats=10.0)[0].steps == 0


def test_rows_count_those_who_never_arrive_as_late():
    runs = [
        record([0, 0, 0], rep=0, ratio=[1, math.nan, 0.5]),
        record([-9, 0, 0], rep=1, ratio=[1, math.nan, 0.3]),
        record([-9, -9, -9], rep=2),
    ]
    (row,) = summarise([*runs, record([], rep=3, status="failed")])
    assert (row.reps, row.arrived, row.elbo) == (3, 2, 0)
    assert (row.steps_to_target, row.seconds_to_target) == (20, pytest.approx(0.2))
    assert row.variance_ratio == pytest.approx(0.4)
    (lone,) = summarise(runs[2:] + [record([0, 0, 0], task="u")])[:1]
    assert lone.steps_to_target == 0
    never = summarise([runs[0], record([-9] * 3, "stl")])[1]
    assert never.seconds_to_target is None


def test_late_variance_ratio_looks_at_the_last_third():
    ratio = [9.0, 9, 9, 9, 0.3, math.nan, 0.1]
    assert late_variance_ratio(record([0] * 7, ratio=ratio)) == pytest.approx(0.2)
    assert math.isnan(late_variance_ratio(record([0] * 7)))
    assert math.isnan(late_variance_ratio(record([])))
