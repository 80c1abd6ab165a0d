"""All that looks at a density, from several places, in both precisions."""

import contextlib

import jax
import numpy as np

from quietgrad.diagnostics.propriety import (
    LogDensityProbe,
    slow_tails,
    spike,
    unbounded_coordinate,
    unbounded_direction,
)
from quietgrad.evaluation.points import Points


@contextlib.contextmanager
def precision(dtype):
    """Numbers as users have them, single unless they ask for more, and NumPyro's broadcasts."""
    double = np.dtype(dtype).itemsize == 8
    with jax.enable_x64(double), jax.numpy_rank_promotion("allow"):
        yield


def probe_of(target, dtype):
    points = Points(target, dtype)
    return LogDensityProbe(target, dtype, lambda z: points(z)[0], points)


def places(dim):
    """Centers and sds of q: at zero, where coordinates are equal, and at random."""
    for seed, std in ((None, 1.0), (1, 0.1), (2, 1.0)):
        random = np.zeros(dim) if seed is None else np.random.default_rng(seed).normal(size=dim)
        yield random, np.full(dim, std)


def findings(target, dtype, way=None):
    """What is found at each place: while fitting, and improper tails by the verdict."""
    probe, dim = probe_of(target, dtype), target.dim
    for center, std in places(dim):
        every = range(dim)
        found = unbounded_coordinate(probe, center, std, every)
        found = found or unbounded_direction(probe, center, std, way)
        found = found or spike(probe, center, std, every, start_std=std)
        tails = slow_tails(probe, center, std, np.diag(std))
        yield found, [ray for ray, tail in tails if tail.improper]
