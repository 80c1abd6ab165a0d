"""Steps of a method and an optimiser in a compiled loop, and what there is to tell after it.

Step t uses keys folded with t and a rate that depends on t, so that nothing depends on how steps are cut
into chunks. The loop's bounds are run-time numbers: a shorter chunk does not compile again.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, Key, PyTree

from .._util.compiling import program
from ..solvers.guarded_adam import GuardedState
from .methods import AbstractEnergyMethod, StepInfo
from .problem import EnergyProblem

# The rate at the end, as a share of that at the start; half a cosine leads there.
LAST_RATE = 0.01
# The steps whose mean gradients are compared: two windows at the end of the run.
WINDOWS = (0.8, 0.9)


class Job(NamedTuple):
    """What does not change during a fit."""

    problem: EnergyProblem
    method: AbstractEnergyMethod
    optimizer: Any
    batch_size: int | None
    rate: Float[Array, ""]
    key: Key[Array, ""]


class Carry(NamedTuple):
    """What a step carries: parameters, optimiser, chains, and sums for the summary."""

    params: PyTree
    optimizer: PyTree
    state: PyTree
    before: PyTree
    early: PyTree
    late: PyTree


class ChunkSummary(NamedTuple):
    """Of the steps of a chunk: means of what they tell, and the gradient's size and noise.

    `gradient` is the norm of the mean gradient; `noise` the root of a step's variance, from the
    differences of neighbours; `skipped` counts steps whose gradient was not finite; `reach` is how far
    chains are from the rows' mean, in the rows' deviations.
    """

    info: StepInfo
    gradient: Float[Array, ""]
    noise: Float[Array, ""]
    skipped: Int[Array, ""]
    reach: Float[Array, ""]
    finite: Array


@program
def run_chunk(
    job: Job, carry: Carry, first: Int[Array, ""], last: Int[Array, ""], span: Float[Array, ""]
) -> tuple[Carry, ChunkSummary]:
    """Steps from `first` up to `last`, of `span` in all."""
    nothing = jnp.zeros((), job.problem.data.dtype)
    sums = (
        StepInfo(nothing, nothing, nothing, nothing),
        jax.tree.map(jnp.zeros_like, carry.params),
        nothing,
        jnp.zeros((), jnp.int32),
    )

    def body(t: Array, loop: tuple[Carry, Any]) -> tuple[Carry, Any]:
        carry, (infos, total, squares, skipped) = loop
        key_rows, key_step = jr.split(jr.fold_in(job.key, t))
        rows = _rows(job, key_rows)
        grad, info, state = job.method.step(job.problem, carry.params, rows, carry.state, key=key_step)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(grad)]))
        grad = jax.tree.map(lambda g: jnp.where(finite, g, 0.0), grad)
        part = t / span
        after = _updated(job, carry, grad, finite, part)
        squares = squares + jnp.where(t > 0, _square(_minus(grad, carry.before)), 0.0).astype(
            squares.dtype
        )
        early = (part >= WINDOWS[0]) & (part < WINDOWS[1])
        carry = Carry(
            *after,
            state,
            grad,
            _plus(carry.early, grad, early),
            _plus(carry.late, grad, part >= WINDOWS[1]),
        )
        infos = jax.tree.map(lambda a, b: a + b.astype(a.dtype), infos, info)
        return carry, (infos, jax.tree.map(jnp.add, total, grad), squares, skipped + ~finite)

    carry, (infos, total, squares, skipped) = jax.lax.fori_loop(first, last, body, (carry, sums))
    count = jnp.maximum(last - first, 1).astype(nothing.dtype)
    leaves = jax.tree.leaves(carry.params)
    return carry, ChunkSummary(
        jax.tree.map(lambda x: x / count, infos),
        jnp.sqrt(_square(total)) / count,
        jnp.sqrt(0.5 * squares / count),
        skipped,
        _reach(job, carry.state),
        jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in leaves])),
    )


@program
def agreement(carry: Carry) -> Float[Array, ""]:
    """The cosine between the mean gradients of the two windows: near one while there is a way to go.

    Gradients that are noise alone point anywhere.
    """
    pairs = zip(jax.tree.leaves(carry.early), jax.tree.leaves(carry.late), strict=True)
    inner = sum((jnp.sum(a * b) for a, b in pairs), jnp.zeros(()))
    return inner / jnp.sqrt(_square(carry.early) * _square(carry.late))


def _rows(job: Job, key: Key[Array, ""]) -> Float[Array, "batch dim"]:
    data = job.problem.data
    if job.batch_size is None:
        return data
    return data[jr.randint(key, (job.batch_size,), 0, data.shape[0])]


def _updated(
    job: Job, carry: Carry, grad: PyTree, finite: Array, part: Float[Array, ""]
) -> tuple[PyTree, PyTree]:
    """Parameters and the optimiser's state after the step; the same where the gradient is not finite."""
    state = carry.optimizer
    if isinstance(state, GuardedState):
        down = 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(part, 1.0)))
        rate = job.rate * (LAST_RATE + (1 - LAST_RATE) * down)
        state = state._replace(rate=rate.astype(state.rate.dtype))
    updates, after = job.optimizer.value.update(grad, state, carry.params)
    params = optax.apply_updates(carry.params, updates)
    keep = (carry.params, state), (params, after)
    return jax.tree.map(lambda old, new: jnp.where(finite, new, old), *keep)


def _reach(job: Job, state: PyTree) -> Float[Array, ""]:
    x = job.method.draws(state)
    if x is None:
        return jnp.zeros(())
    return jnp.sqrt(jnp.mean(((x - job.problem.mean[None, :]) / job.problem.scale[None, :]) ** 2))


def _minus(a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(jnp.subtract, a, b)


def _plus(total: PyTree, more: PyTree, take: Any) -> PyTree:
    return jax.tree.map(lambda a, b: a + jnp.where(take, b, 0.0).astype(a.dtype), total, more)


def _square(tree: PyTree) -> Float[Array, ""]:
    return sum((jnp.sum(x**2) for x in jax.tree.leaves(tree)), jnp.zeros(()))
