"""Base draws made on the host: antithetic pairs of scrambled Sobol points. Nothing is compiled."""

import numpy as np
from jaxtyping import Float

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
        digits = reverse_digits(scramble(reverse_digits(sobol_digits(pairs, dim)), seed))
        u = (digits.astype(float) + 0.5) * 2.0**-32
    e = base.host_quantile(u)
    return np.concatenate([e, -e])
