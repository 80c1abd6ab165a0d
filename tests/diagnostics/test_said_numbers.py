"""Numbers that a diagnosis goes by: fair resampling, variances as masses, places by their mass."""

import dataclasses
import inspect
import math
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.diagnostics.chains import Chains
from quietgrad.diagnostics.for_nuts import nuts_start
from quietgrad.diagnostics.metric import Metric
from quietgrad.diagnostics.modes import stays_away
from quietgrad.diagnostics.psis import Weights
from quietgrad.diagnostics.settings import DEFAULT
from quietgrad.diagnostics.shapes import _straight
from quietgrad.diagnostics.verdict import Findings, _corrects, _density
from quietgrad.evaluation.points import Points


@pytest.mark.parametrize("count", [1, 4])
def test_resampling_is_fair(count):
    """Each row is taken as often as its weight says, on average over where it begins."""
    weights, rng = np.array([0.15, 0.5, 0.05, 0.3]), np.random.default_rng(count)
    rows = [Weights(weights, 0.1).resample(rng, count) for _ in range(4000)]
    share = np.bincount(np.concatenate(rows), minlength=4) / len(rows) / count
    error = np.sqrt(weights * (1 - weights) / len(rows))
    assert np.all(np.abs(share - weights) < 5 * error)


@pytest.mark.parametrize("dense", [False, True])
def test_a_mass_matrix_has_variances(dense):
    """Of a Gaussian, whose curvature is the same at every draw."""
    std = np.array([3.0, 0.2])
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((z / std) ** 2), dim=2)
    q = qg.MeanField(jnp.zeros(2), jnp.log(jnp.asarray(std)))
    found = nuts_start(target, q, np.random.default_rng(0), 2, dense=dense).inverse_mass_matrix
    np.testing.assert_allclose(
        np.asarray(found), np.diag(std**2) if dense else std**2, rtol=0.1, atol=1e-3
    )


def test_of_many_places_where_scouts_stay_the_heaviest_are_looked_at():
    """Seven modes of equal width at other heights; q's chains are at the first of them."""
    places, logs = 20.0 * np.arange(7), np.array([0.0, -3.0, 1.0, -2.0, 2.0, -1.0, -2.5])

    def log_density(z):
        return jnp.max(jnp.asarray(logs) - 0.5 * (z[0] - places) ** 2) - 0.5 * z[1] ** 2

    def stay(chosen, rng):
        z = rng.standard_normal((60, len(chosen), 2)) + np.stack([places[chosen], 0 * places[chosen]], 1)
        values = logs[chosen] - 0.5 * (z[..., 0] - places[chosen]) ** 2 - 0.5 * z[..., 1] ** 2
        return Chains(z[0], z, values, 0.9)

    rng, metric = np.random.default_rng(0), Metric(np.zeros(2), np.ones(2))
    points = Points(qg.Target.from_logdensity(log_density, dim=2), np.dtype(float))
    settings = dataclasses.replace(DEFAULT, candidates=2)
    chains, scouts = stay(np.zeros(8, int), rng), stay(np.arange(7), rng)
    found = stays_away(points, chains, scouts, metric, np.ones(2), settings)
    assert [round(one.place[0] / 20) for one in found] == [4, 2]
    # Equal widths: the mass is the height, but for the noise of 40 states.
    assert [one.log_mass for one in found] == pytest.approx([2.0, 1.0], abs=1.0)


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e3])
def test_the_straightest_pair_does_not_depend_on_units(unit):
    """Coordinates 0 and 2 correlate by 0.999; 1 has the largest covariances."""
    correlation = np.array([[1.0, 0.2, 0.999], [0.2, 1.0, 0.2], [0.999, 0.2, 1.0]])
    scale = np.array([1.0, 100.0, 1.0]) * unit
    root = np.linalg.cholesky(correlation) * scale[:, None]
    settings = dataclasses.replace(DEFAULT, straight=0.99)
    found = _straight(Metric(np.zeros(3), root), settings)
    assert found is not None
    assert sorted(found[:2]) == [0, 2]
    assert found[2] == pytest.approx(0.999)
    assert _straight(Metric(np.zeros(3), root), dataclasses.replace(DEFAULT, straight=0.9995)) is None


def findings():
    return Findings([], [], [])


@pytest.mark.parametrize(("share", "fatal"), [(0.0, 0), (0.5, 0), (0.99, 0), (1.01, 1), (30.0, 1)])
def test_draws_without_a_density_are_fatal_beyond_their_limit(share, fatal):
    """In units of the limit. A few may be mended by weights."""
    evidence = SimpleNamespace(
        draws=SimpleNamespace(bad_share=share * DEFAULT.most_bad),
        watched=SimpleNamespace(coordinate=str),
        settings=DEFAULT,
        tails=[],
        elsewhere=None,
        modes=None,
        missed=None,
    )
    found = findings()
    inspect.unwrap(_density)(evidence, found)
    assert (len(found.fatal), len(found.wrong)) == (fatal, int(share > 0) - fatal)


@pytest.mark.parametrize(("worth", "enough"), [(0.5, False), (0.9, False), (1.1, True), (5.0, True)])
def test_weights_correct_if_they_are_worth_enough_draws(worth, enough):
    """In units of the number that is asked for; the tail of these weights is light."""
    size, some = 4000, int(worth * DEFAULT.worth)
    w = np.where(np.arange(size) < some, 1.0 / some, 0.0)
    evidence = SimpleNamespace(
        weights=Weights(w, 0.3),
        draws=SimpleNamespace(log_q=np.zeros(size)),
        settings=DEFAULT,
        watched=SimpleNamespace(dim=2),
        best=SimpleNamespace(log_ratio=np.full(2, math.log(0.9))),
        flat=True,
    )
    found = findings()
    assert bool(inspect.unwrap(_corrects)(evidence, found)) is enough
    assert len(found.fine) == 1
