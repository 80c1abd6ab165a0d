"""A window of steps with the average of its iterates, and the paired test at its end."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from ..loop import Carry, Job
from ..metrics import elbo_terms
from ..targets import Target


class Verdict(NamedTuple):
    """Paired differences on the same fresh draws, with standard errors.

    `average`: the window's average minus its last iterate; `answer`: the average minus the previous
    answer; `elbo` and `error`: of the better of average and last iterate.
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
        return all(jnp.isfinite(x) for x in self)


@eqx.filter_jit
def run_window(
    job: Job, carry: Carry, first: Int[Array, ""], last: Int[Array, ""]
) -> tuple[Carry, PyTree]:
    """Steps first, ..., last - 1, and the mean of the parameters after each."""

    def body(t: Array, loop: tuple[Carry, PyTree]) -> tuple[Carry, PyTree]:
        carry, sums = loop
        carry = job.step(carry, t)
        return carry, jax.tree.map(jnp.add, sums, carry.params)

    zero = jax.tree.map(jnp.zeros_like, carry.params)
    carry, sums = jax.lax.fori_loop(first, last, body, (carry, zero))
    count = jnp.maximum(last - first, 1)
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
    values = _three(target, static, average, end, answer, e)
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
    return (*_mean_error(mid - last), *_mean_error(mid - old), *_mean_error(best))


def _mean_error(x: Float[Array, " pairs"]) -> tuple[Array, Array]:
    return jnp.mean(x), jnp.std(x, ddof=1) / jnp.sqrt(x.size)
