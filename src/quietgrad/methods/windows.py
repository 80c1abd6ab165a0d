"""A window of stochastic steps whose rate follows half a cosine, with the average of its iterates."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from .steps import Carry, Job


class Rates(NamedTuple):
    """The rate at a window's first step and at its last; in between it follows half a cosine."""

    first: Float[Array, ""]
    last: Float[Array, ""]


@eqx.filter_jit
def run_window(
    job: Job, carry: Carry, first: Int[Array, ""], last: Int[Array, ""], rates: Rates
) -> tuple[Carry, PyTree]:
    """Steps first, ..., last - 1, and the mean of the parameters after each."""
    count = jnp.maximum(last - first, 1)

    def body(t: Array, loop: tuple[Carry, PyTree]) -> tuple[Carry, PyTree]:
        carry, sums = loop
        down = 0.5 * (1 - jnp.cos(jnp.pi * (t - first) / count))
        rate = (rates.first + down * (rates.last - rates.first)).astype(carry.optimizer.rate.dtype)
        carry = job.step(carry._replace(optimizer=carry.optimizer._replace(rate=rate)), t)
        return carry, jax.tree.map(jnp.add, sums, carry.params)

    zero = jax.tree.map(jnp.zeros_like, carry.params)
    carry, sums = jax.lax.fori_loop(first, last, body, (carry, zero))
    return carry, jax.tree.map(lambda s: s / count.astype(s.dtype), sums)
