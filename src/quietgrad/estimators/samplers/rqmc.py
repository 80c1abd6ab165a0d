"""Randomised quasi-Monte Carlo: Sobol points, scrambled again in every step.

The points are fixed at init. A step scrambles each coordinate's digits by a random nested permutation
(a hash in the manner of Laine & Karras 2011, with a fresh uniform seed for each coordinate), so each
point by itself is uniform and means are unbiased, while the points together keep filling space evenly.
One random integer per coordinate is drawn, not one per draw and coordinate.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Key, UInt32

from ..._numerics.sobol import MOST_DIMENSIONS, reverse_digits, scramble, sobol_digits
from ..._util.random import bits
from ...families.bases import AbstractBase
from .sampler import AbstractSampler


class Rqmc(AbstractSampler):
    """L scrambled Sobol points carried to the base by its quantile function; any L.

    Powers of two are balanced best. Needs the quantile function of the base and at most 21,201
    coordinates, as far as Sobol's direction numbers are known.
    """

    @property
    def independent(self) -> bool:
        """Never: the points of a step are placed together."""
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
        return jnp.asarray(reverse_digits(sobol_digits(draws, dim)))

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
        return from_digits(reverse_digits(scramble(state, seed)), base, dtype)


def from_digits(x: UInt32[Array, "*shape"], base: AbstractBase, dtype: Any) -> Float[Array, "*shape"]:
    """Carry 32 uniform binary digits to the base: one digit for the sign, the rest for the size.

    Uniforms stay at or below one half, where floats are dense, so neither tail is cut off by rounding.
    """
    digits = 23 if jnp.finfo(dtype).bits == 32 else 31
    size = (x << 1) >> (32 - digits)
    u = (size.astype(dtype) + 0.5) * 2.0 ** -(digits + 1)
    e = base.quantile(u)
    return jnp.where(x >> 31 == 1, -e, e)
