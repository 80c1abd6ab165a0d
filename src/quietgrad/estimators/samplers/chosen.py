"""Antithetic pairs or independent draws, as a number of the program says."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PyTree

from ...families.bases import AbstractBase
from .sampler import AbstractSampler


class Chosen(AbstractSampler):
    """Mirror images for the second half of the draws where `paired`, else draws of their own.

    An odd number of draws is independent.
    """

    paired: Bool[Array, ""]

    @property
    def independent(self) -> bool:
        """Not known before the program runs."""
        return False

    def draw(
        self,
        state: PyTree,
        base: AbstractBase,
        shape: tuple[int, int],
        dtype: Any,
        *,
        key: Key[Array, ""],
    ) -> Float[Array, "draws base"]:
        """As `Antithetic` or as `Iid` with the same key."""
        del state
        if shape[0] % 2:
            return base.sample(shape, dtype, key=key)

        def pairs() -> Float[Array, "draws base"]:
            first = base.sample((shape[0] // 2, shape[1]), dtype, key=key)
            return jnp.concatenate([first, -first])

        # A branch: where draws are paired, no random numbers are made in vain.
        return jax.lax.cond(self.paired, pairs, lambda: base.sample(shape, dtype, key=key))
