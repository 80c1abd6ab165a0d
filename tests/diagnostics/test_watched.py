"""Which coordinates are watched, and in which order."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from quietgrad import Diagnostics, Target
from quietgrad.diagnostics.chains import Chains
from quietgrad.diagnostics.draws import Draws
from quietgrad.diagnostics.evidence import _shapes as shapes
from quietgrad.diagnostics.metric import Metric
from quietgrad.diagnostics.watched import Watched

TARGET = Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=4)


def watching(**settings):
    """Four coordinates of one scale, of which 2 has the steepest slopes and 0 the next ones."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((64, 4))
    slope = z * np.array([3.0, 1.0, 9.0, 0.1])
    drawn = Draws(z, z, z[:, 0], z[:, 0], slope, 1)
    return Watched(TARGET, np.dtype(float), drawn, rng, Diagnostics(**settings))


@pytest.mark.parametrize(("among", "order"), [(3, [2, 0, 1, 3]), (4, [0, 1, 2, 3]), (5, [0, 1, 2, 3])])
def test_of_many_coordinates_those_most_strongly_coupled_are_the_first(among, order):
    """Shapes are looked for among the first; where all are looked at, they stay in order."""
    assert watching(shape_coordinates=among).coupled.tolist() == order


def test_a_selection_is_half_of_coupled_ones_and_half_at_random():
    seen = watching(shape_coordinates=2, most_coordinates=2)
    assert seen.selected
    assert seen.coordinates[0] == 2
    assert seen.coordinates[1] in (0, 1, 3)
    z = np.arange(8.0).reshape(2, 4)
    np.testing.assert_array_equal(seen(z), z[:, seen.coordinates])
    spread = seen.spread_out(np.array([5.0, 6.0]), unseen=-1.0)
    assert spread[2] == 5
    assert spread[seen.coordinates[1]] == 6
    assert np.count_nonzero(spread == -1) == 2


def test_a_selection_of_few_coordinates_begins_with_the_coupled_ones_too():
    """However many there may be where shapes are looked for."""
    seen = watching(shape_coordinates=5, most_coordinates=3)
    assert seen.coordinates[0] == 2
    assert sorted(seen.coupled) == [0, 1, 2, 3]


@pytest.mark.parametrize("among", [2, 3, 4, 5])
@pytest.mark.parametrize("most", [2, 3, 4])
def test_shapes_have_the_numbers_of_their_coordinates(among, most):
    """Coordinate 2 drives the scales of all others, of which some are looked at; correlations are told
    where all are."""
    seen = watching(shape_coordinates=among, most_coordinates=most)
    z = np.random.default_rng(1).standard_normal((30, 40, 4))
    z[..., [0, 1, 3]] *= np.exp(z[..., 2:3])
    z = z[..., seen.coordinates] if seen.selected else z
    correlation = np.eye(4)
    correlation[1, 3] = correlation[3, 1] = 0.99
    metric = Metric(np.zeros(4), np.linalg.cholesky(correlation))
    found = shapes(
        seen,
        Chains(z[0], z, z[..., 0], 0.9),
        metric,
        Diagnostics(shape_coordinates=among, most_coordinates=most),
    )
    looked_at = (seen.coordinates if seen.selected else seen.coupled)[:among]
    assert found.funnel == (2, sorted(set(looked_at.tolist()) - {2}))
    if looked_at.size < 4 or seen.selected:
        assert found.straight is None
    else:
        assert found.straight is not None
        assert sorted(found.straight[:2]) == [1, 3]


@pytest.mark.parametrize("dense", [False, True])
def test_the_scales_of_some_coordinates_are_theirs(dense):
    rng, chosen = np.random.default_rng(2), np.array([2, 0])
    root = np.tril(rng.normal(size=(4, 4))) + 2 * np.eye(4)
    center, std = 5 + rng.normal(size=4), np.sqrt(np.sum(root**2, axis=1))
    metric, z = Metric(center, root if dense else std), rng.normal(size=(3, 4))
    some = metric.some(chosen)
    np.testing.assert_allclose(some.whiten(z[:, chosen]), ((z - center) / std)[:, chosen], rtol=1e-12)
    np.testing.assert_allclose(some.std, std[chosen], rtol=1e-12)


def test_coordinates_that_are_few_are_all_watched():
    everything = watching(most_coordinates=4)
    assert not everything.selected
    assert everything.coordinates.tolist() == [0, 1, 2, 3]


def test_variables_on_their_own_scale_are_watched_however_little_they_change():
    """A probability, which changes by less than one. The mean is a coordinate already."""

    def model():
        numpyro.sample("mean", dist.Normal(0.0, 1.0))
        numpyro.sample("chance", dist.Beta(2.0, 2.0))

    target, rng = Target.from_numpyro(model), np.random.default_rng(0)
    z = 0.01 * rng.standard_normal((64, 2))
    seen = Watched(target, np.dtype(float), Draws(z, z, z[:, 0], z[:, 0], z, 1), rng)
    assert [seen.name(i) for i in range(3)] == ["coordinate chance", "coordinate mean", "chance"]
    np.testing.assert_array_equal(seen(z)[:, :2], z)
    np.testing.assert_allclose(seen(z)[:, 2], 1 / (1 + np.exp(-z[:, 0])), rtol=1e-12)
    assert seen(z).shape == (64, 3)
