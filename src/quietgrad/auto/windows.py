"""A window of steps with the average of its iterates, and the paired test at its end."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..metrics import elbo_terms
from ..steps import Carry, Job
from ..targets import Target


class Verdict(NamedTuple):
    """Paired differences on the same fresh draws, with standard errors.

    `average`: the window's average minus its last iterate; `answer`: the better of the two minus the
    previous answer; `elbo` and `error`: of the better of the two.
    """

    average: float
    average_error: float
    answer: float
    answer_error: float
    elbo: float
    error: float

    @property
    def finite(self) -> bool:
        """Whether every number is."""
        return all(map(math.isfinite, self))


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


def compare(
    target: Target,
    static: PyTree,
    average: PyTree,
    end: PyTree,
    answer: PyTree,
    e: Float[Array, "draws base"],
) -> Verdict:
    """ELBO terms of the three at the same draws; antithetic draws are averaged in pairs first."""
    values = jax.device_get(_three(target, static, average, end, answer, e))
    return Verdict(*(float(x) for x in values))


@eqx.filter_jit
def _three(
    target: Target, static: PyTree, average: PyTree, end: PyTree, answer: PyTree, e: Array
) -> tuple[Any, ...]:
    def terms(params: PyTree) -> Float[Array, " pairs"]:
        values = elbo_terms(target, eqx.combine(params, static), e)
        return values.reshape(2, -1).mean(axis=0)

    mid, last, old = terms(average), terms(end), terms(answer)
    best = jnp.where(jnp.mean(mid) >= jnp.mean(last), mid, last)
    return (*_mean_error(mid - last), *_mean_error(best - old), *_mean_error(best))


def _mean_error(x: Float[Array, " pairs"]) -> tuple[Array, Array]:
    return jnp.mean(x), jnp.std(x, ddof=1) / jnp.sqrt(x.size)
