"""Proper posteriors of models are never called improper, improper ones always, in both precisions."""

import jax.numpy as jnp
import jax.random as jr
import known_models as models
import numpy as np
import optax
import pytest
from looking import findings, precision, probe_of

import quietgrad as qg
from quietgrad.diagnostics.propriety import spike
from quietgrad.status import Status

# Those that compile quickly, and differ: the others are slow.
QUICK = (
    "a simplex of 4 with an empty category",
    "a simplex without data",
    "truncated data",
    "censored data",
    "vague gammas",
    "a half-Cauchy scale",
    "a clipped rate",
    "a flat coordinate",
    "a half-flat coordinate",
    "a log scale",
    "a collapsing scale",
    "an intercept beside groups",
    "classes separated by a sum",
)


def often(name, dtype):
    """Whether a case is for every run: quick ones are, in one precision, pairs of them in turn."""
    return name in QUICK and dtype is (np.float32, np.float64)[QUICK.index(name) // 2 % 2]


def in_both_precisions(table):
    return pytest.mark.parametrize(
        ("name", "dtype"),
        [
            pytest.param(name, dtype, marks=() if often(name, dtype) else pytest.mark.slow)
            for name in table
            for dtype in (np.float32, np.float64)
        ],
    )


@pytest.mark.turns(2)
@in_both_precisions(models.PROPER)
def test_no_proper_posterior_is_accused(name, dtype):
    with precision(dtype):
        for found, tails in findings(models.PROPER[name](), dtype):
            assert found is None
            assert tails == []


@in_both_precisions(models.IMPROPER)
def test_every_improper_posterior_is_found_and_named(name, dtype):
    make, words = models.IMPROPER[name]
    # The way that a fit goes which follows the likelihood.
    way = np.array([1.0, 1.0, -1.0]) if "sum" in name else None
    with precision(dtype):
        for found, tails in findings(make(), dtype, way):
            assert found is not None
            assert found.status is Status.UNBOUNDED
            assert words in found.hint
            # The verdict has the same rule; here it is handed coordinates only.
            assert ("along" in words) == bool(tails)


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("place", [1.0, 0.98765])
@pytest.mark.parametrize(("power", "found"), [(0.5, False), (0.9, False), (1.1, True), (2.0, True)])
def test_a_spike_has_infinite_mass_from_the_power_of_one_on(power, found, place, dtype):
    """|z - a|^-s beside a normal; q's mean is not quite there, but a point of the search may be."""
    tiny = np.finfo(dtype).tiny

    def log_density(z):
        return -power * jnp.log(jnp.abs(z[0] - place) + tiny) - 0.5 * z @ z

    target = qg.Target.from_logdensity(log_density, dim=2)
    mean, std = np.array([1.02, 0.3]), np.array([0.05, 1.0])
    told = spike(probe_of(target, dtype), mean, std, [0, 1], start_std=np.ones(2))
    assert (told is not None) == found
    if told is not None:
        assert told.status is Status.COLLAPSED
        assert "spike along coordinate 0" in told.hint


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_search_that_begins_on_a_spike_stays_there(dtype):
    """There is nothing to gain from finer grids, so that it ends as soon as it may."""
    tiny = np.finfo(dtype).tiny
    target = qg.Target.from_logdensity(lambda z: -1.5 * jnp.log(jnp.abs(z[0]) + tiny) - z[0] ** 2, dim=1)
    for std in (1e-3, 0.05, 1.0):
        told = spike(probe_of(target, dtype), np.zeros(1), np.full(1, std), [0], start_std=np.ones(1))
        assert told is not None
        assert told.status is Status.COLLAPSED


def test_a_narrow_normal_is_no_spike():
    for std in (1e-2, 1e-5, 1e-8, 1e-11):
        target = qg.Target.from_logdensity(lambda z, s=std: -0.5 * jnp.sum((z / s) ** 2), dim=1)
        probe = probe_of(target, np.float64)
        assert spike(probe, np.full(1, 0.3), np.ones(1), [0], start_std=np.ones(1)) is None


@pytest.mark.turns(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "name",
    [
        "a simplex of 4 with an empty category",
        "truncated data",
        *(
            pytest.param(name, marks=pytest.mark.stress)
            for name in models.PROPER
            if name not in ("a simplex of 4 with an empty category", "truncated data")
        ),
    ],
)
def test_fits_of_proper_posteriors_run_to_their_end(name, dtype):
    with precision(dtype):
        result = qg.fit(models.PROPER[name](), "mean-field", seconds=120.0, key=jr.key(0))
        assert result.status is Status.CONVERGED, result.hint
        assert not any("improper" in reason for reason in result.diagnose().reasons)


METHODS = {
    "auto": (qg.Auto(), "full-rank"),
    "saa": (qg.Saa(), "mean-field"),
    "sgd": (qg.Sgd(optimizer=optax.adam(0.05), steps=2000), "full-rank"),
}


@pytest.mark.stress
# Fits that diverge overflow on their way.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", models.IMPROPER)
def test_fits_of_improper_posteriors_say_so(name, method, dtype):
    made, family = METHODS[method]
    with precision(dtype):
        result = qg.fit(models.IMPROPER[name][0](), family, method=made, seconds=120.0, key=jr.key(0))
    assert result.status is Status.UNBOUNDED, result.hint
