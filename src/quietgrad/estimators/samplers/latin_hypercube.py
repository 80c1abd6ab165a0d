"""Latin hypercube: in every coordinate, one draw in each of L equally likely strata."""

from typing import Any

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from ..._util.random import bits
from ...families.bases import AbstractBase
from .rqmc import from_digits
from .sampler import AbstractSampler


class LatinHypercube(AbstractSampler):
    """Strata in random order for each coordinate, uniform within them; any L, any dimension.

    Removes the part of the variance that is a sum of functions of single coordinates, and never has more
    than L/(L - 1) times the variance of independent draws (Owen 1997).
    """

    @property
    def independent(self) -> bool:
        """Never: no two draws are in the same stratum."""
        return False

    def variance_bound(self, draws: int) -> float:
        """L/(L - 1): what is not a sum of functions of single coordinates can gain that little."""
        return draws / (draws - 1) if draws > 1 else 1.0

    def draw(
        self,
        state: PyTree,
        base: AbstractBase,
        shape: tuple[int, int],
        dtype: Any,
        *,
        key: Key[Array, ""],
    ) -> Float[Array, "draws base"]:
        """u = (stratum + v)/L with v uniform, in 32 digits."""
        del state
        key_order, key_place = jr.split(key)
        strata = jnp.broadcast_to(jnp.arange(shape[0], dtype=jnp.uint32)[:, None], shape)
        order = jr.permutation(key_order, strata, axis=0, independent=True)
        # The strata cut the 2^32 digits into L runs of equal length (the last takes the rest).
        width = 2**32 // shape[0]
        place = bits(shape, key=key_place) % jnp.uint32(width)
        return from_digits(order * jnp.uint32(width) + place, base, dtype)
