"""Averaging over repetitions, smoothing, and the choice of axes."""

import dataclasses

import fabricated
import numpy as np
import pytest

from quietgrad.report.curves import Curve, curve, decay, late_limits
from quietgrad.report.names import STYLES, styles
from quietgrad.report.numbers import duration, listed, nats, number, with_error


def runs(**columns):
    """Three repetitions with the same column but for a factor 1, 2, 6."""
    one = fabricated.study(
        tasks=["frisk"], families=["mean-field"], labels=["nocv"], draws=[10], reps=1, steps=200
    )[0]
    return [
        dataclasses.replace(
            one, columns={**one.columns, **{k: factor * np.array(v) for k, v in columns.items()}}
        )
        for factor in (1.0, 2.0, 6.0)
    ]


def test_statistics_over_repetitions():
    made = curve(runs(elbo=[1.0, 1, 1, 1, 2]), "elbo")
    assert made is not None
    assert made.middle("median")[-1] == 4
    assert made.middle("mean")[-1] == 6
    assert (made.low[-1], made.high[-1]) == (2, 12)
    assert made.reps == 3


def test_what_was_not_evaluated_is_left_out():
    made = curve(runs(lppd=[np.nan, 1, np.nan, 2, np.nan]), "lppd")
    assert made is not None
    assert made.step.tolist() == [50, 150]
    assert curve(runs(lppd=[np.nan] * 5), "lppd") is None


def test_repetitions_of_different_length_are_aligned_by_step():
    long, short = runs(elbo=[1.0, 1, 1, 1, 2])[:2]
    cut = {name: column[:2] for name, column in short.columns.items()}
    made = curve([long, dataclasses.replace(short, columns=cut)], "elbo")
    assert made is not None
    assert made.step.tolist() == [0, 50, 100, 150, 200]
    assert made.median.tolist() == [1.5, 1.5, 1, 1, 2]


def test_methods_that_end_themselves_are_aligned_by_time():
    auto = fabricated.study(
        tasks=["frisk"],
        families=["mean-field"],
        labels=[],
        methods=["auto"],
        reps=3,
        ablations=False,
    )
    made = curve(auto, "elbo", factor=0.9)
    assert made is not None
    assert made.ends
    # Evaluated at other times in every repetition: each has its last value by then, the answer at last.
    assert len(made.step) == 10
    assert np.all(np.diff(made.seconds) > 0)
    assert np.all(np.diff(made.low) >= 0)
    answer = auto[0].outcome["elbo"]
    assert (made.low[-1], made.median[-1], made.high[-1]) == (answer,) * 3
    assert made.for_limits("median").tolist() == [answer]
    # They have few evaluations, and do not weaken the smoothing of the others.
    others = fabricated.study(
        tasks=["frisk"], families=["mean-field"], draws=[10], reps=1, ablations=False
    )
    assert decay([*others, *auto]) == decay(others)


def test_what_the_judge_erred_by_is_taken_off():
    one = runs(elbo=[1.0, 1, 1, 1, 2])[0]
    made = curve([dataclasses.replace(one, outcome={**one.outcome, "judge_offset": 0.25})], "elbo")
    assert made is not None
    assert made.median[-1] == 1.75


def test_runs_without_a_clock_have_no_seconds():
    beside = [
        dataclasses.replace(run, outcome={**run.outcome, "timed": False}) for run in runs(elbo=[1.0] * 5)
    ]
    made = curve(beside, "elbo")
    assert made is not None
    assert np.all(np.isnan(made.seconds))


def test_smoothing_is_weaker_for_short_runs():
    long = fabricated.study(tasks=["frisk"], reps=1, steps=100_000, draws=[10], ablations=False)
    short = fabricated.study(tasks=["frisk"], reps=1, steps=500, draws=[10], ablations=False)
    assert decay(long) == 0.9
    assert decay(short) == pytest.approx(11 / 61, abs=0.01)


def test_limits_leave_out_the_plunge_and_show_the_end():
    step = np.arange(400)
    curves = [final - 1e6 * np.exp(-step / 15) for final in (-844.0, -843.3)]
    low, high = late_limits(curves) or (0, 0)
    assert -856 < low < -845
    assert -843.3 < high < -842


def test_limits_show_the_climb_of_a_run_that_is_still_rising():
    low, high = late_limits([np.linspace(-1000.0, 0.0, 50)]) or (0, 0)
    assert low < -600
    assert high > 0


def test_limits_keep_a_run_in_sight_that_ends_far_below():
    low, high = late_limits([np.full(50, -100.0), np.full(50, -900.0)]) or (0, 0)
    assert low < -900
    assert high > -100


def test_thinning_keeps_the_ends():
    column = np.arange(1000.0)
    few = Curve(column, column, column, column, column, column, 1).thinned(100)
    assert len(few.step) == 100
    assert (few.step[0], few.step[-1]) == (0, 999)


def test_every_label_has_a_style_of_its_own_in_the_papers_colours():
    records = fabricated.study(labels=["nocv", "zvcv-gd", "quadcv", "a", "b", "c"], reps=1)
    looks = styles(records)
    assert list(looks)[:3] == ["nocv", "zvcv-gd", "quadcv"]
    assert len({(look.colour, look.dash) for look in looks.values()}) == len(looks)
    assert len({(look.colour, look.dash) for look in STYLES.values()}) == len(STYLES)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.128, "0.128"), (12.345, "12.3"), (1234.5, "1,234"), (None, "–"), (-0.5, "−0.500"), (0.0, "0")],
)
def test_numbers_in_words(value, text):
    assert number(value) == text


def test_a_number_with_its_error():
    assert with_error(0.98642, 0.0134) == "0.986 ± 0.01"
    assert with_error(0.98642, None, 2) == "0.99"


def test_spans_and_nats_in_words():
    assert duration(503.0) == "8.4 minutes"
    assert duration(3.0) == "3.00 seconds"
    assert nats(-843.987) == "−843.99"
    assert [listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b and c",
    ]
