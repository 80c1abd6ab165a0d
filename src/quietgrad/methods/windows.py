"""A window of stochastic steps whose rate follows half a cosine, with the average of its iterates."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from .steps import Carry, Job

# The first step, and the one after the last.
Span = tuple[Int[Array, ""], Int[Array, ""]]


class Rates(NamedTuple):
    """The rate at a window's first step and at its last; in between it follows half a cosine."""

    first: Float[Array, ""]
    last: Float[Array, ""]


@eqx.filter_jit
def run_window(
    job: Job, carry: Carry, sums: PyTree, piece: Span, span: Span, rates: Rates
) -> tuple[Carry, PyTree, PyTree]:
    """The steps of one piece of a window, the sums of the parameters after each, and their mean.

    `sums` are those of the pieces before, zeros for the first; the mean is right after the last piece.
    Most windows are of one piece.
    """
    first, last = span
    count = jnp.maximum(last - first, 1)

    def body(t: Array, loop: tuple[Carry, PyTree]) -> tuple[Carry, PyTree]:
        carry, sums = loop
        down = 0.5 * (1 - jnp.cos(jnp.pi * (t - first) / count))
        rate = (rates.first + down * (rates.last - rates.first)).astype(carry.optimizer.rate.dtype)
        carry = job.step(carry._replace(optimizer=carry.optimizer._replace(rate=rate)), t)
        return carry, jax.tree.map(jnp.add, sums, carry.params)

    carry, sums = jax.lax.fori_loop(*piece, body, (carry, sums))
    return carry, sums, jax.tree.map(lambda s: s / count.astype(s.dtype), sums)
