"""Charts of a verdict's chains: a density of u is that of z times the volume that the map changes."""

import jax.random as jr
import numpy as np
import pytest
from hierarchy_models import normal_groups, normal_target

from quietgrad.diagnostics.charts import BaseChart
from quietgrad.evaluation.points import Points
from quietgrad.families import FullRank, Hierarchical
from quietgrad.families.conditional import NestedLaplace, recentred
from quietgrad.families.conditional.at_points import MOST_AT_FIRST
from quietgrad.structure import Structure

GROUPS = 3


@pytest.fixture(scope="module")
def hierarchy():
    """Target, chart, its points, and forty places: one block of a program and a part of another."""
    target = normal_target(normal_groups(GROUPS))
    structure = Structure([0, 1], np.arange(2, GROUPS + 2)[:, None], "arrowhead")
    first = NestedLaplace.begin(target, structure, np.zeros((1, GROUPS)), np.zeros(2))
    nested = recentred(first, np.zeros(2), np.full(2, 1e-3), MOST_AT_FIRST)
    q = Hierarchical(of_globals=FullRank.init(2, key=jr.key(1)), of_locals=nested)
    points = Points(target, np.dtype(float))
    u = 0.7 * np.random.default_rng(0).standard_normal((40, q.base_dim))
    return points, BaseChart(target, q, points), u


def test_a_density_of_base_coordinates_is_the_target_s_times_the_volume(hierarchy):
    points, chart, u = hierarchy
    z, log_det = chart.carry(u)
    value, _ = chart(u)
    assert value.shape == log_det.shape == (40,)
    # Two programs and the host: rounding of sums of some ten terms of size ten.
    np.testing.assert_allclose(value, points(z)[0] + log_det, atol=1e-6)
    step = 1e-5
    at = [chart.carry(u[:1] + sign * step * np.eye(u.shape[1]))[0] for sign in (1, -1)]
    jacobian = (at[0] - at[1]) / (2 * step)
    # A central difference is off by step^2, and by rounding over step.
    assert log_det[0] == pytest.approx(np.linalg.slogdet(jacobian)[1], abs=1e-5)


def test_its_gradient_is_that_of_its_value_and_is_counted(hierarchy):
    points, chart, u = hierarchy
    before = points.gradients
    _, slope = chart(u)
    assert points.gradients - before == len(u)
    direction, step = np.random.default_rng(1).standard_normal(u.shape), 1e-5
    rise = (chart(u + step * direction)[0] - chart(u - step * direction)[0]) / (2 * step)
    np.testing.assert_allclose(np.sum(slope * direction, axis=1), rise, rtol=1e-5, atol=1e-5)


def test_points_have_their_coordinates_or_the_middle(hierarchy):
    _, chart, u = hierarchy
    z = chart.carry(u)[0]
    np.testing.assert_allclose(chart.of_points(z), u, atol=1e-6)
    z[3, -1] = np.nan
    again = chart.of_points(z)
    np.testing.assert_array_equal(again[3], 0.0)
    np.testing.assert_allclose(np.delete(again, 3, axis=0), np.delete(u, 3, axis=0), atol=1e-6)
