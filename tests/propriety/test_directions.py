"""Directions between the coordinates that nothing is known of: found, named, and only where they are."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import quietgrad as qg
from quietgrad.diagnostics.propriety import LogDensityProbe, unbounded_direction
from quietgrad.evaluation.points import Points
from quietgrad.status import Status

GROUPS = np.repeat(np.eye(3), 5, axis=0)
# An intercept beside one for each group: their difference is open.
DESIGN = np.concatenate([np.ones((15, 1)), GROUPS], axis=1)
Y = DESIGN @ np.array([0.5, 1.0, -1.0, 2.0]) + np.random.default_rng(0).normal(size=15)


def regression(prior_std, dtype=float):
    design, y = jnp.asarray(DESIGN, dtype), jnp.asarray(Y, dtype)
    return qg.Target.from_logdensity(
        lambda z: -0.5 * jnp.sum((y - design @ z) ** 2) - 0.5 * jnp.sum((z / prior_std) ** 2), dim=4
    )


def looked_at(target, dtype, mean=None, std=None):
    mean = np.linalg.lstsq(DESIGN, Y)[0] if mean is None else mean
    std = np.full(mean.size, 0.3) if std is None else std
    points = Points(target, dtype)
    probe = LogDensityProbe(target, dtype, lambda z: points(z)[0], points)
    return unbounded_direction(probe, mean, std)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_difference_that_is_open_is_found_and_named(dtype):
    found = looked_at(regression(jnp.inf, dtype), dtype)
    assert found is not None
    assert found.status is Status.UNBOUNDED
    assert "between coordinate" in found.hint
    assert "and 1 more" in found.hint
    for ratio in ("+1", "-1"):
        assert ratio in found.hint


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("prior_std", [10.0, 1e4])
def test_a_wide_prior_is_a_prior(prior_std, dtype):
    assert looked_at(regression(prior_std, dtype), dtype) is None


def test_a_heavy_tail_is_an_end():
    target = qg.Target.from_logdensity(
        lambda z: -0.5 * (z[0] + z[1]) ** 2 - jnp.log1p((z[0] - z[1]) ** 2), dim=2
    )
    assert looked_at(target, float, np.zeros(2), np.ones(2)) is None


def test_hyperparameters_are_not_asked():
    """Nothing has to fall off along them."""

    def log_prior(z, h):
        return -0.5 * z @ z + 0 * h

    result = qg.fit(qg.Target(log_prior, dim=2), hyperparameters=jnp.array(0.0), key=jr.key(0))
    assert "between" not in result.hint


@pytest.mark.parametrize(
    ("method", "family"),
    [
        (qg.Auto(), "full-rank"),
        (qg.Bam(), "full-rank"),
        (qg.Saa(), "mean-field"),
        (qg.Sgd(optimizer=optax.adam(0.05), steps=2000, evaluate_every=40), "mean-field"),
    ],
    ids=["auto", "bam", "saa", "sgd"],
)
def test_no_method_converges_there(method, family):
    target = regression(jnp.inf)
    result = qg.fit(target, family, method=method, key=jr.key(0))
    assert result.status is Status.UNBOUNDED, result.hint
    assert "between coordinate" in result.hint


def test_units_from_tiny_to_huge_are_no_impropriety():
    """From a start far from the mass, the density rises for a long way along a coefficient of 1e5."""
    rng = np.random.default_rng(3)
    units = np.array([1e-5, 1e-2, 1.0, 1e2, 1e5])
    x = (rng.normal(size=(60, 5)) + 0.5 * rng.normal(size=(60, 1))) * units
    y = jnp.asarray((x / units) @ np.array([1.0, -0.5, 0.2, 0.8, -1.0]) + rng.normal(size=60))
    x, units = jnp.asarray(x), jnp.asarray(units)
    target = qg.Target.from_logdensity(
        lambda z: -0.5 * jnp.sum((y - x @ z) ** 2) - 0.5 * jnp.sum((z * units / 10) ** 2), dim=5
    )
    result = qg.fit(target, "full-rank", key=jr.key(0))
    assert result.status is Status.CONVERGED
