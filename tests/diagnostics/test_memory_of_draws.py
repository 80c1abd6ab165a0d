"""What is computed from very many numbers of draws must not hold copies of all of them."""

import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.diagnostics.draws import Draws, draw
from quietgrad.diagnostics.metric import metric_of
from quietgrad.diagnostics.watched import coupled
from quietgrad.evaluation.points import Points


@pytest.fixture
def many() -> Draws:
    rng = np.random.default_rng(0)
    z = rng.standard_normal((64, 100_000))
    values = -0.5 * np.sum(z**2, axis=1)
    return Draws(z, z, values, values, -1.1 * z, 4)


def test_scales_and_couplings_take_blocks_of_coordinates(many: Draws):
    tracemalloc.start()
    metric_of(many)
    coupled(many)
    _ = many.finite
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # Blocks of 8 MB, some of them at a time, and a few vectors of 0.8 MB each: less than the draws.
    assert peak < many.z.nbytes


def test_draws_are_held_once():
    dim, settings = 20_000, qg.Diagnostics(most_numbers=2**24)
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=dim)
    q = qg.MeanField(loc=jnp.zeros(dim), log_std=jnp.zeros(dim))
    points = Points(target, q.dtype)
    rng = np.random.default_rng(0)
    draw(q, points, rng, 128, settings)
    tracemalloc.start()
    made = draw(q, points, rng, 512, settings)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    held = made.e.nbytes + made.z.nbytes + made.slope.nbytes
    # Beside them is a group of 128, with copies of its draws in two precisions.
    assert peak < 2 * held


def test_blocks_of_coordinates_change_nothing(many: Draws):
    many.slope[3, 99_999] = np.nan
    keep = many.finite & (many.values >= np.quantile(many.values[many.finite], 0.05))
    std = np.std(many.z, axis=0)
    w = (many.z[keep] - np.mean(many.z, axis=0)) / std
    curvature = -np.mean(many.slope[keep] * std * w, axis=0) / np.mean(w**2, axis=0)
    np.testing.assert_allclose(metric_of(many).root, std / np.sqrt(curvature), rtol=1e-12)
    square = np.mean(many.slope[many.finite] ** 2, axis=0) * np.var(many.z, axis=0)
    np.testing.assert_array_equal(coupled(many), np.argsort(-square, kind="stable"))
    np.testing.assert_array_equal(np.flatnonzero(~many.finite), [3])
