"""Antithetic pairs (e, -e): the part of the integrand that is odd in e cancels exactly.

Location parameters are silenced; the even part is seen by half as many draws, so the noise of scale
parameters can double at equal L. Sticking the landing is what quiets those.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from ...families.bases import AbstractBase
from .iid import Iid
from .sampler import AbstractSampler


class Antithetic(AbstractSampler):
    """L/2 draws of `half` and their mirror images; needs an even L and a symmetric base."""

    half: AbstractSampler = Iid()

    @property
    def independent(self) -> bool:
        """Never: half of the draws are mirror images of the others."""
        return False

    def refuses(self, draws: int, base: AbstractBase, dim: int) -> str | None:
        """Pairs need an even number of draws."""
        if draws % 2:
            return f"antithetic pairs need an even number of draws; got {draws}"
        return self.half.refuses(draws // 2, base, dim)

    def variance_bound(self, draws: int) -> float:
        """Twice that of the half which is drawn: the even part is seen by half as many draws."""
        return 2 * self.half.variance_bound(draws // 2)

    def init(self, draws: int, dim: int) -> PyTree:
        """The state of the half that is drawn."""
        return self.half.init(draws // 2, dim)

    def draw(
        self,
        state: PyTree,
        base: AbstractBase,
        shape: tuple[int, int],
        dtype: Any,
        *,
        key: Key[Array, ""],
    ) -> Float[Array, "draws base"]:
        """The first half of the draws, then the same draws with the sign turned."""
        first = self.half.draw(state, base, (shape[0] // 2, shape[1]), dtype, key=key)
        return jnp.concatenate([first, -first])
