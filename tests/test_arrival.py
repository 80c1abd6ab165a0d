"""Arrivals are held: noise around the mark, lost crossings, gaps, and ends."""

import math
import statistics
import subprocess
import sys

import numpy as np
import pytest

from quietgrad.evaluation.arrival import HOLD, arrival, arrival_index, held_index

MARK = -100.0


def at(elbo, mark=MARK, hold=HOLD):
    """Where a run with these evaluations arrives, on a clock that is ten times their number."""
    found = arrival(10.0 * np.arange(len(elbo)), np.asarray(elbo, float), mark, hold)
    return None if found is None else round(found / 10)


def test_a_climb_without_noise_arrives_when_it_crosses():
    assert at(np.linspace(-200.0, -50.0, 31)) == 20
    assert at([-200, -150, -100, -90, -80, -70, -60]) == 2


def test_a_single_lucky_value_is_no_arrival():
    assert at([-200, -99, -150, -140, -130, -120, -99, -98, -97, -96, -95]) == 6
    assert at([-200, -99, -150, -140, -130, -120, -110]) is None


def test_a_crossing_that_is_lost_again_counts_from_the_one_that_is_kept():
    lost = [-200, -99, -98, -130, -130, -130]
    assert at(lost) is None
    assert at([*lost, *[-99] * 5]) == 6


def test_a_dip_after_the_arrival_does_not_undo_it():
    assert at([-200, -99, -103, -98, -102, -97, -99]) == 1


def test_the_first_evaluation_may_be_there_already():
    assert at([-99] * 6) == 0
    assert at([-99, -98]) == 0


def test_never():
    assert at([-101] * 50) is None
    assert at([]) is None


@pytest.mark.parametrize("gap", [math.nan, -math.inf])
def test_what_is_not_a_number_is_not_at_the_mark(gap):
    assert at([gap] * 8) is None
    assert at([-99, gap, gap, gap, gap, -99, -99]) == 5
    assert at([-200, -99, gap, -99, gap, -99, -99]) == 1
    assert at([-99, -99, *[gap] * 5]) is None


def test_at_the_end_a_value_needs_another_one_behind_it():
    climb = [-300, -250, -200, -150, -120]
    assert at([*climb, -99]) is None
    assert at([*climb, -99, -98]) == 5
    assert at([*climb, -99, -130]) is None
    assert at([*climb, -99, -130, -98]) == 5
    assert at([*climb, -99, -130, -131, -98]) is None


def test_equal_to_the_mark_is_there():
    assert at([MARK] * 5) == 0
    assert at([math.nextafter(MARK, -math.inf)] * 5) is None


def test_a_longer_hold_asks_for_more():
    elbo = [-200, -99, -99, -130, -130, -130, -99, -99, -99, -99]
    assert [at(elbo, hold=hold) for hold in (1, 2, 3, 5)] == [1, 1, 1, 6]
    with pytest.raises(ValueError, match="hold must be at least 1"):
        arrival([0.0], [0.0], MARK, hold=0)


def test_noise_around_the_mark_moves_an_arrival_by_less_than_a_window():
    # A climb of one nat an evaluation with noise of two nats. The first crossing comes early by chance,
    # the held one when the level is there: half of HOLD either way, because the level moves within the
    # window, and three standard deviations of the noise at one nat an evaluation.
    level = -np.arange(60, -60, -1.0) + MARK
    true, slack = 60, HOLD / 2 + 3 * 2.0
    for seed in range(200):
        noisy = level + 2.0 * np.random.default_rng(seed).standard_normal(len(level))
        found = arrival_index(noisy, MARK)
        assert found is not None
        assert abs(found - true) <= slack


def test_pure_noise_below_the_mark_seldom_arrives_and_a_plain_crossing_always_does():
    # Two standard deviations below: each value is above with probability 0.023. The median of five needs
    # three of them, of which one is given: 6 x 0.023^2 for each start, 120 starts, 0.9 % of the runs.
    runs = [np.random.default_rng(seed).standard_normal(120) - 2 for seed in range(300)]
    held = sum(arrival_index(run, 0.0) is not None for run in runs)
    crossed = sum(arrival_index(run, 0.0, hold=1) is not None for run in runs)
    expected = 300 * 120 * 0.02275 * 6 * 0.02275**2
    assert held <= expected + 5 * math.sqrt(expected)
    assert crossed > 250


def test_an_arrival_counted_fifty_nats_early_is_seen():
    # A run that climbs a nat an evaluation is fifty evaluations later at the mark than fifty nats below.
    climb = np.arange(-200.0, -50.0)
    assert at(climb) == 100
    assert at(climb, mark=MARK - 50) == 50


def test_both_clocks_are_read_at_the_same_evaluation():
    elbo, steps, seconds = [-200.0, -99, -99], [0, 50, 100], [0.0, 0.25, 0.5]
    assert arrival(steps, elbo, MARK) == 50
    assert arrival(seconds, elbo, MARK) == 0.25


def test_it_takes_no_jax():
    code = "import sys, quietgrad.evaluation.arrival; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def literal(elbo, mark, hold):
    """From the first place on from which every window has a (lower) median at the mark."""
    size, elbo = min(hold, len(elbo)), [-math.inf if math.isnan(x) else x for x in elbo]
    windows = [elbo[i : i + size] for i in range(len(elbo) - size + 1)]
    stays = [statistics.median_low(window) >= mark for window in windows]
    start = next((i for i in range(len(stays)) if all(stays[i:])), None)
    if start is None:
        return None
    found = arrival_index(elbo[start:], mark, hold)
    return None if found is None else start + found


@pytest.mark.parametrize("hold", [1, 2, 4, HOLD])
def test_who_stays_at_the_mark_to_the_end_is_as_the_definition_says(hold):
    rng, found = np.random.default_rng(hold), []
    for length in range(1, 15):
        for trend in (-0.5, 0.0, 0.5):
            for _ in range(20):
                # Whole numbers, many of which are the mark itself, and some that are none.
                elbo = np.round(MARK + trend * np.arange(length) / 3 + rng.standard_normal(length))
                elbo[rng.random(length) < 0.1] = math.nan
                found.append(held_index(elbo, MARK, hold))
                assert found[-1] == literal(elbo.tolist(), MARK, hold)
    # All three kinds were among them: from the first on, later, and never.
    assert {None, 0} < set(found)
