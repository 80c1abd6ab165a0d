"""Base draws made on the host: independent, pairs of scrambled Sobol points, or levelled pairs.

Nothing is compiled.
"""

import functools

import numpy as np
from jaxtyping import Float, UInt32

from ..estimators.samplers.sobol import MOST_DIMENSIONS, reverse_digits, scramble, sobol_digits
from ..families.bases import AbstractBase

# Places at which a part of a base is looked at.
PLACES = 64


def sobol_pairs(
    base: AbstractBase, pairs: int, dim: int, rng: np.random.Generator
) -> Float[np.ndarray, "draws dim"]:
    """`pairs` quasi-random draws and their mirror images; independent ones beyond Sobol's dimensions."""
    if dim > MOST_DIMENSIONS:
        u = rng.random((pairs, dim))
    else:
        seed = rng.integers(0, 2**32, (1, dim), np.uint32)
        digits = reverse_digits(scramble(_reversed(pairs, dim), seed))
        u = (digits.astype(float) + 0.5) * 2.0**-32
    e = base.host_quantile(u)
    return np.concatenate([e, -e])


@functools.lru_cache(maxsize=8)
def _reversed(pairs: int, dim: int) -> UInt32[np.ndarray, "pairs dim"]:
    """Sobol's points before they are scrambled, the lowest digits first."""
    return reverse_digits(sobol_digits(pairs, dim))


def equal_magnitude_pairs(
    base: AbstractBase, pairs: int, dim: int, rng: np.random.Generator
) -> Float[np.ndarray, "draws dim"]:
    """Draws for a climb at fixed draws, and their mirror images: every coordinate has the same sizes.

    There are as many sizes as pairs, one for each equally likely part of the base, in random order and
    with random signs. A size is the root mean square of its part, so that every coordinate has the
    variance of the base. What a climb at fixed draws overfits first is a coordinate whose draws
    happen to be small.
    """
    sizes = rng.permuted(np.tile(_sizes(base, pairs), (dim, 1)), axis=1).T
    e = np.where(rng.random((pairs, dim)) < 0.5, -sizes, sizes)
    return np.concatenate([e, -e])


def _sizes(base: AbstractBase, pairs: int) -> Float[np.ndarray, " pairs"]:
    """The root mean square of each of the equally likely parts of one half of the base."""
    u = 0.5 + 0.5 * (np.arange(pairs * PLACES) + 0.5) / (pairs * PLACES)
    return np.sqrt(np.mean(base.host_quantile(u).reshape(pairs, PLACES) ** 2, axis=1))


def iid(
    base: AbstractBase, shape: tuple[int, int], rng: np.random.Generator
) -> Float[np.ndarray, "draws dim"]:
    """Independent draws of a base."""
    return base.host_quantile((rng.integers(0, 2**32, shape, np.uint32) + 0.5) * 2.0**-32)
