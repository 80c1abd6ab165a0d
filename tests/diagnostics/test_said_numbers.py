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
from quietgrad.diagnostics.comparison import Comparison
from quietgrad.diagnostics.for_nuts import nuts_start
from quietgrad.diagnostics.linear_response import linear_response
from quietgrad.diagnostics.long_chains import Settled
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


def test_resampled_draws_are_in_no_order():
    """What takes the first few of them must not get neighbours."""
    rows = Weights(np.full(100, 0.01), 0.1).resample(np.random.default_rng(0), 100)
    assert sorted(rows) == list(range(100))
    assert np.sum(np.diff(rows) < 0) > 20


@pytest.mark.parametrize("draws", [50, 5000])
def test_weights_are_usable_below_their_limit(draws):
    """One draw has a fifth of the mass, so that the shape of the tail decides."""
    w = np.full(draws, 0.8 / (draws - 1))
    w[0] = 0.2
    limit = Weights(w, 0.0).limit
    assert limit == pytest.approx(min(1 - 1 / math.log10(draws), 0.7))
    assert [Weights(w, khat).usable for khat in (-0.3, limit - 0.01, limit + 0.01, 0.89, 2.0)] == [
        *(True, True, False, False, False)
    ]


def test_the_covariance_of_some_coordinates_is_a_part_of_the_whole_one():
    """Of a Gaussian, from a mean-field fit at its optimum: exact, up to the tolerance of the solver."""
    root = np.array([[1.0, 0, 0], [0.5, 0.7, 0], [-0.3, 0.2, 2.0]])
    covariance = root @ root.T
    precision = jnp.asarray(np.linalg.inv(covariance))
    target = qg.Target.from_logdensity(lambda z: -0.5 * z @ precision @ z, dim=3)
    q = qg.MeanField(jnp.zeros(3), -0.5 * jnp.log(jnp.diagonal(precision)))
    chosen = [2, 0]
    found = linear_response(target, q, np.random.default_rng(0), chosen)
    np.testing.assert_allclose(
        found.covariance, covariance[np.ix_(chosen, chosen)], rtol=1e-2, atol=1e-2
    )
    np.testing.assert_allclose(found.std, np.sqrt(np.diagonal(covariance))[chosen], rtol=1e-2)


def test_the_sharper_of_two_comparisons_is_taken():
    """Number by number: the first where it is good enough or the better one."""
    ones = np.ones(3)
    first = Comparison(ones, np.array([0.05, 0.5, 0.5]), ones, np.array([0.5, 0.05, 0.5]))
    other = Comparison(2 * ones, np.array([0.01, 0.2, 0.9]), 2 * ones, np.array([0.2, 0.01, 0.9]))
    found = first.sharper(other, mean=0.1, scale=0.1)
    np.testing.assert_array_equal(found.shift, [1, 2, 1])
    np.testing.assert_array_equal(found.shift_error, [0.05, 0.2, 0.5])
    np.testing.assert_array_equal(found.log_ratio, [2, 1, 1])
    np.testing.assert_array_equal(found.log_ratio_error, [0.2, 0.05, 0.5])


@pytest.mark.parametrize(
    ("changed", "diverged", "fine"),
    [
        ({}, 0.9, True),
        ({}, 1.1, False),
        ({"drift": 1.1}, 0.9, False),
        ({"drift": 0.9}, 0.9, True),
        ({"scale_error": 10.0}, 0.9, False),
        ({"effective": 1.0}, 0.9, False),
    ],
)
def test_long_chains_are_enough_within_their_limits(changed, diverged, fine):
    """Divergences in units of their limit."""
    good = Settled(effective=1e6, scale_error=0.0, drift=0.5, name="a")
    objection = good._replace(**changed).objection(diverged * DEFAULT.most_diverged, DEFAULT)
    assert (not objection) is fine


@pytest.mark.parametrize("dense", [False, True])
def test_a_mass_matrix_has_variances(dense):
    """Of a Gaussian, whose curvature is the same at every draw."""
    std = np.array([3.0, 0.2])
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((z / std) ** 2), dim=2)
    q = qg.MeanField(jnp.zeros(2), jnp.log(jnp.asarray(std)))
    start = nuts_start(target, q, np.random.default_rng(0), 2, dense=dense)
    found = start.inverse_mass_matrix
    # A short warm-up would only make it worse.
    assert start.numpyro["adapt_mass_matrix"] is False
    assert start.numpyro["dense_mass"] is dense
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
