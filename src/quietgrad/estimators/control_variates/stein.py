"""Zero-variance control variates: Stein columns of the base draw, the same for every parameter."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from ...families import AbstractFamily
from ...targets import Target
from ..weights import Polynomial
from .control_variate import AbstractControlVariate, Sample


class SteinColumns(AbstractControlVariate):
    """The columns of a polynomial Stein kernel; give each parameter its own coefficients."""

    kernel: Polynomial = Polynomial()

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """Tails may be too heavy."""
        del target
        return self.kernel.refuses(q.base)

    def columns(
        self, state: PyTree, target: Target, q: AbstractFamily, sample: Sample, *, key: Key[Array, ""]
    ) -> Float[Array, "draws params columns"]:
        """One block of columns, repeated for every parameter."""
        del state, target, key
        block = self.kernel.columns(sample.e, q.base.score(sample.e))[:, None, :]
        return jnp.broadcast_to(block, (*sample.phi.shape, block.shape[2]))
