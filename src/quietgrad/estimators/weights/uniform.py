"""Equal weights: the plain Monte Carlo mean."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...families.bases import AbstractBase
from .weights import AbstractWeights


class Uniform(AbstractWeights):
    """w_l = 1/L."""

    def biased(self, *, independent: bool) -> bool:
        """Never."""
        del independent
        return False

    def __call__(self, e: Float[Array, "draws base"], base: AbstractBase) -> Float[Array, " draws"]:
        """1/L for each draw."""
        del base
        return jnp.full(e.shape[0], 1 / e.shape[0], e.dtype)
