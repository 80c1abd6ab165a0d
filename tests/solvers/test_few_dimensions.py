"""The search of a peak in a few dimensions, on densities that take no program."""

import numpy as np
import pytest

from quietgrad.solvers.few_dimensions import PeakSearch

MIDDLE, SCALE = np.array([0.7, -2.0]), np.array([1.0, 30.0])


def heavy(x):
    """Minus a length that grows linearly far out, where a whole Newton step leads ever further away."""
    unit = (x - MIDDLE) / SCALE
    length = np.sqrt(1 + unit**2)
    return -np.sum(length, axis=1), -unit / length / SCALE


def quadratic(x):
    unit = (x - MIDDLE) / SCALE
    return -0.5 * np.sum(unit**2, axis=1), -unit / SCALE


@pytest.mark.parametrize("start", [0.5, -2.0, 3.0])
def test_steps_that_would_lead_away_are_shortened(start):
    peak = PeakSearch().settle(heavy, MIDDLE + start * SCALE)
    assert peak is not None
    assert peak.left < PeakSearch().enough
    # A step d that would gain 1e-4 nats has d^2 / 2 = 1e-4; differences over share = 0.3 sds see a
    # curvature of 1 / sqrt(1 + share^2).
    np.testing.assert_allclose(peak.at / SCALE, MIDDLE / SCALE, atol=0.02)
    np.testing.assert_allclose(peak.root @ peak.root.T, np.diag(SCALE**2), rtol=0.05, atol=1e-6)


@pytest.mark.parametrize("constant", [0.0, 1e15])
def test_a_constant_in_which_gains_are_lost_stops_no_step(constant):
    """Of a quadratic the slopes know the peak, even where its values are all the same numbers."""
    search = PeakSearch()
    peak = search.settle(lambda x: (quadratic(x)[0] + constant, quadratic(x)[1]), MIDDLE + 0.3 * SCALE)
    assert peak is not None
    np.testing.assert_allclose(peak.at, MIDDLE, atol=1e-6)
    np.testing.assert_allclose(peak.root @ peak.root.T, np.diag(SCALE**2), rtol=1e-6, atol=1e-6)


def test_there_is_no_peak_where_the_density_is_not_finite():
    assert PeakSearch().settle(lambda x: (np.full(len(x), np.nan), 0 * x), MIDDLE) is None


@pytest.mark.parametrize("constant", [0.0, 2.0])
def test_a_curvature_is_that_over_shares_of_an_sd_wherever_the_search_begins(constant):
    """At the peak of a density whose sd is 30, the first differences are too small to see its tails.

    The second constant makes the height of the peak zero, of which no difference is a small part.
    """
    search = PeakSearch()
    peak = search.settle(lambda x: (heavy(x)[0] + constant, heavy(x)[1]), MIDDLE)
    assert peak is not None
    # In units of SCALE differences over h see a curvature of 1 / sqrt(1 + h^2). h is a share of an sd
    # that is one but for terms of the order of share^2, so that the rest is of the fourth.
    variance = np.sqrt(1 + search.share**2)
    np.testing.assert_allclose(
        np.diagonal(peak.root @ peak.root.T), variance * SCALE**2, rtol=search.share**4
    )
