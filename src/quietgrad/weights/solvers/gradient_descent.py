"""Gradient descent on the least-squares problem, the paper's Algorithm 2, in closed form.

The residuals obey r_0 = H phi (H centres) and r_m+1 = (I - cK) r_m with K = 11' + G and c = 2 rate/L,
and beta collects them: A = c sum_{m<M} (I - cK)^m H.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .solver import AbstractGramSolver

UNROLL = 8


class GradientDescent(AbstractGramSolver):
    """`steps` descent steps of size `rate` from the mean and zero; "converge" is their limit.

    The limit does not depend on the rate; any rate below L / lambda_max(K) gets there.
    """

    steps: int | Literal["converge"] = eqx.field(static=True, default=4)
    rate: Float[Array, ""] = eqx.field(converter=jnp.asarray, default=1e-3)

    def __check_init__(self):
        """Reject counts that are no counts."""
        if self.steps != "converge" and not (isinstance(self.steps, int) and self.steps >= 0):
            raise ValueError(f'steps must be a whole number or "converge"; got {self.steps!r}')

    def apply(
        self, gram: Float[Array, "n n"], rows: Float[Array, "m n"], scale: float
    ) -> Float[Array, "m n"]:
        """Iterate on the rows, which are few, instead of forming A."""
        del scale
        with_constant = gram + 1
        if self.steps == "converge":
            swept = rows @ jnp.linalg.pinv(with_constant, hermitian=True)
        elif self.steps == 0:
            swept = jnp.zeros_like(rows)
        else:
            c = (2 * self.rate / gram.shape[0]).astype(gram.dtype)

            def step(_: int | Int[Array, ""], sums: Float[Array, "m n"]) -> Float[Array, "m n"]:
                # sums of (I - cK)^m applied to the rows, of which the first is the rows themselves
                return rows + sums - c * (sums @ with_constant)

            loop = _unrolled if self.steps <= UNROLL else jax.lax.fori_loop
            swept = c * loop(1, self.steps, step, rows)
        return swept - jnp.mean(swept, axis=1, keepdims=True)


def _unrolled(first: int, last: int, step, start):
    for index in range(first, last):
        start = step(index, start)
    return start
