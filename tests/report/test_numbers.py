"""Numbers and spans of time in sentences: what is read back is what was written."""

import math

import numpy as np
import pytest

from quietgrad.report.numbers import count, duration, listed, nats, number, times

SECONDS = {"seconds": 1.0, "minutes": 60.0, "hours": 3600.0}


def read(text):
    return float(text.replace("−", "-").replace(",", ""))


@pytest.mark.parametrize("seconds", [0.02, 7.0, 119.0, 121.0, 3600.0, 7199.0, 7201.0, 1e5])
def test_a_duration_is_as_long_as_it_says(seconds):
    amount, unit = duration(seconds).split()
    # Three digits, or one after the point of an amount of at least two.
    assert read(amount) * SECONDS[unit] == pytest.approx(seconds, rel=0.026)
    assert seconds < 120 or read(amount) >= 2
    assert unit == "hours" or read(amount) < 120.5


@pytest.mark.parametrize("value", [*np.geomspace(1e-9, 1e9, 37), 999.6, 0.0])
def test_a_number_has_three_digits_and_its_sign(value):
    for signed in (value, -value):
        text = number(float(signed))
        assert read(text) == pytest.approx(signed, rel=0.0051)
        assert "e" not in text or not 1e-3 <= value < 1e6
    assert read(number(float(value), digits=5)) == pytest.approx(value, rel=0.000051)


def test_what_is_no_number_has_a_sign_of_its_own():
    assert number(None) == number(math.nan) == "–"
    assert (number(math.inf), number(-math.inf)) == ("∞", "−∞")
    assert nats(math.nan) == "–"


@pytest.mark.parametrize("value", [-12.345, 99_999.0, -123_456.7])
def test_nats_keep_two_decimals_unless_there_are_very_many(value):
    assert read(nats(value)) == pytest.approx(value, abs=0.005 if abs(value) < 1e5 else 0.5)


def test_words_agree_with_what_they_count():
    assert (count(1, "cell"), count(0, "cell"), count(1200, "cell")) == (
        "1 cell",
        "0 cells",
        "1,200 cells",
    )
    assert [listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == [
        "a",
        "a and b",
        "a, b and c",
    ]
    assert times([2.13, 14.2]) == "2.1 to 14 times"
    assert times([14.2, 13.9]) == "14 times"
