"""Gradient descent on the least-squares problem, the paper's Algorithm 2, in closed form.

The residuals obey r_0 = H phi (H centres) and r_m+1 = (I - cK) r_m with K = 11' + G and c = 2 rate/L,
and beta collects them: A = c sum_{m<M} (I - cK)^m H. With D = [1 C], K = DD' and
D'(I - cDD')^m = (I - cD'D)^m D': the same sums in the number of columns.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...._numerics.lapack import pseudo_inverse
from .solver import AbstractGramSolver, Scale

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
        self, gram: Float[Array, "n n"], rows: Float[Array, "m n"], scale: Scale
    ) -> Float[Array, "m n"]:
        """Iterate on the rows, which are few, instead of forming A."""
        del scale
        with_constant = gram + 1
        if self.steps == "converge":
            swept = rows @ pseudo_inverse(with_constant, hermitian=True)
        else:
            swept = self._swept(with_constant, rows, gram.shape[0])
        return swept - jnp.mean(swept, axis=1, keepdims=True)

    def apply_columns(
        self, columns: Float[Array, "n columns"], rows: Float[Array, "m columns"], scale: Scale
    ) -> Float[Array, "m n"]:
        """The same steps on as many numbers a row as there are columns and a constant."""
        del scale
        design = jnp.pad(columns, ((0, 0), (1, 0)), constant_values=1)
        rows = jnp.pad(rows, ((0, 0), (1, 0)))
        if self.steps == "converge":
            swept = rows @ pseudo_inverse(design)
        else:
            swept = self._swept(design.T @ design, rows, columns.shape[0]) @ design.T
        return swept - jnp.mean(swept, axis=1, keepdims=True)

    def _swept(
        self, matrix: Float[Array, "k k"], rows: Float[Array, "m k"], draws: int
    ) -> Float[Array, "m k"]:
        """c sum_{m<M} rows (I - c matrix)^m."""
        if self.steps == 0:
            return jnp.zeros_like(rows)
        assert self.steps != "converge"
        c = (2 * self.rate / draws).astype(matrix.dtype)

        def step(_: int | Int[Array, ""], sums: Float[Array, "m k"]) -> Float[Array, "m k"]:
            # the first of the sums is the rows themselves
            return rows + sums - c * (sums @ matrix)

        loop = _unrolled if self.steps <= UNROLL else jax.lax.fori_loop
        return c * loop(1, self.steps, step, rows)


def _unrolled(first: int, last: int, step, start):
    for index in range(first, last):
        start = step(index, start)
    return start
