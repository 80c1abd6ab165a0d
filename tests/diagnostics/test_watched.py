"""Which coordinates are watched, and in which order."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

from quietgrad import Diagnostics, Target
from quietgrad.diagnostics.draws import Draws
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
