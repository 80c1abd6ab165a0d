"""Numbers of a race and of a report, and how far starts of a fit are apart: units and order."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

from quietgrad.fitting.restarts import _distance
from quietgrad.racing.race import EVALUATIONS, _lane, _Run, _steps_between
from quietgrad.racing.result import Lane
from quietgrad.report.numbers import times

HISTORY = {
    "seconds": np.array([0.0, 1.0, 2.0]),
    "step": np.array([0, 100, 200]),
    "elbo": np.array([-9.0, -2.0, -1.0]),
}


def lane_of(pace):
    result = SimpleNamespace(
        estimator=None, history=HISTORY, elbo=-1.0, status="budget", hint="", clock={"total": 3.0}
    )
    done = _Run(result, SimpleNamespace(elbo=-1.0), pace)
    # Stand-ins have no types.
    return inspect.unwrap(_lane)("a", done, None, None, -1.5, None)


@pytest.mark.parametrize(("pace", "microseconds"), [(2e-3, 2000.0), (None, None)])
def test_the_cost_of_a_step_is_in_microseconds(pace, microseconds):
    lane = lane_of(pace)
    assert lane.microseconds == (None if pace is None else pytest.approx(microseconds))
    assert lane.noise_cost is None
    assert (lane.seconds_to_mark, lane.steps_to_mark) == (2.0, 200)


def test_a_race_is_evaluated_so_many_times():
    assert _steps_between(2.0, 2.0 / (7 * EVALUATIONS)) == 7
    # At least after every step, also where one takes longer, or no time that could be measured.
    assert _steps_between(0.01, 1.0) == 1
    assert _steps_between(1e-9 * EVALUATIONS, 0.0) == 1


def test_a_row_says_what_there_is_and_a_dash_for_the_rest():
    lane = lane_of(2e-3)
    assert lane.cells() == ("a", "2", "200", "-1.00", "3.0", "2000", "–")
    values = {name: getattr(lane, name) for name in Lane.__dataclass_fields__}
    never = Lane(**{**values, "seconds_to_mark": None, "steps_to_mark": None, "status": "stalled"})
    assert never.cells() == ("a", "never", "–", "-1.00 (stalled)", "3.0", "2000", "–")


def test_noise_costs_what_it_takes_to_average_it_away():
    """Variance times seconds: the same for a half of the variance at twice the time."""
    lane = lane_of(2e-3)
    values = {name: getattr(lane, name) for name in Lane.__dataclass_fields__}
    one, other = (
        Lane(**{**values, "variance": variance, "microseconds": microseconds})
        for variance, microseconds in ((3.0, 2000.0), (1.5, 4000.0))
    )
    assert one.noise_cost == other.noise_cost == pytest.approx(3.0 * 2e-3)


def test_starts_are_as_far_apart_in_other_units():
    def terms(mean, std, unit):
        return SimpleNamespace(mean=np.array(mean) * unit, std=np.array(std) * unit)

    apart = inspect.unwrap(_distance)
    for unit in (1.0, np.array([1e-3, 50.0])):
        a, b = terms([0.0, 1.0], [1.0, 0.5], unit), terms([1.0, 3.0], [2.0, 0.25], unit)
        # Two sds of 0.5 along the second coordinate; half of one along the first.
        assert apart(a, b) == apart(b, a) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("factors", "said"),
    [([14.2, 2.06, 3.0], "2.1 to 14 times"), ([3.0], "3.0 times"), ([3.01, 2.99], "3.0 times")],
)
def test_factors_are_said_from_the_least_to_the_largest(factors, said):
    assert times(factors) == said
