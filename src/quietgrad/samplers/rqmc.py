"""Randomised quasi-Monte Carlo: Sobol points, scrambled anew inside every step.

The points are fixed at init. A step scrambles each coordinate's digits by a random nested permutation
(a hash in the manner of Laine & Karras 2011, with a fresh uniform seed for each coordinate), so each
point by itself is uniform and means are unbiased, while the points together keep filling space evenly.
One random integer per coordinate is drawn, not one per draw and coordinate.
"""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, UInt32
from scipy.stats import qmc

from .._random import bits
from ..bases import AbstractBase
from .sampler import AbstractSampler

MOST_DIMENSIONS = qmc.Sobol.MAXDIM
MULTIPLIERS = (0x6C50B47C, 0xB82F1E52, 0xC7AFE638, 0x8D22F6E6)


class Rqmc(AbstractSampler):
    """L scrambled Sobol points carried to the base by its quantile function; any L.

    Powers of two are balanced best. Needs the quantile function of the base and at most 21,201
    coordinates, as far as Sobol's direction numbers are known.
    """

    @property
    def independent(self) -> bool:
        """Points keep out of each other's way."""
        return False

    def refuses(self, draws: int, base: AbstractBase, dim: int) -> str | None:
        """Sobol's direction numbers end somewhere."""
        del draws, base
        if dim <= MOST_DIMENSIONS:
            return None
        return (
            f"Sobol points are known for up to {MOST_DIMENSIONS:,} coordinates and {dim:,} are needed; "
            "use sampler='latin-hypercube', which has no limit"
        )

    def init(self, draws: int, dim: int) -> UInt32[Array, "draws base"]:
        """The first L Sobol points as 32 binary digits, stored lowest digit first."""
        with warnings.catch_warnings():
            # SciPy warns when L is no power of two; any L is unbiased here.
            warnings.simplefilter("ignore", UserWarning)
            points = qmc.Sobol(dim, scramble=False).random(draws)
        return _reverse_digits(jnp.asarray((points * 2.0**32).astype(np.uint32)))

    def draw(
        self,
        state: UInt32[Array, "draws base"],
        base: AbstractBase,
        shape: tuple[int, int],
        dtype: Any,
        *,
        key: Key[Array, ""],
    ) -> Float[Array, "draws base"]:
        """The points, scrambled."""
        seed = bits((1, shape[1]), key=key)
        # On reversed digits, carries of sums and products run from leading digits to trailing ones:
        # a digit's flip depends on the digits before it only, which is what a nested scramble is.
        x = state + seed
        for multiplier in MULTIPLIERS:
            x = x ^ (x * jnp.uint32(multiplier))
        return from_digits(_reverse_digits(x), base, dtype)


def from_digits(x: UInt32[Array, "*shape"], base: AbstractBase, dtype: Any) -> Float[Array, "*shape"]:
    """Carry 32 uniform binary digits to the base: one digit for the sign, the rest for the size.

    Uniforms stay at or below one half, where floats are dense, so neither tail is cut off by rounding.
    """
    digits = 23 if jnp.finfo(dtype).bits == 32 else 31
    size = (x << 1) >> (32 - digits)
    u = (size.astype(dtype) + 0.5) * 2.0 ** -(digits + 1)
    e = base.quantile(u)
    return jnp.where(x >> 31 == 1, -e, e)


def _reverse_digits(x: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        keep = jnp.uint32(mask)
        x = ((x >> shift) & keep) | ((x & keep) << shift)
    return jax.lax.shift_right_logical(x, jnp.uint32(16)) | (x << 16)
