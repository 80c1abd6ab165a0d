"""Base draws made on the host: independent, or pairs of scrambled Sobol points. Nothing is compiled."""

import functools

import numpy as np
from jaxtyping import Float, UInt32

from .bases import AbstractBase
from .samplers.sobol import MOST_DIMENSIONS, reverse_digits, scramble, sobol_digits


def spread_pairs(
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


def independent(
    base: AbstractBase, shape: tuple[int, int], rng: np.random.Generator
) -> Float[np.ndarray, "draws dim"]:
    """Independent draws of a base."""
    return base.host_quantile((rng.integers(0, 2**32, shape, np.uint32) + 0.5) * 2.0**-32)
