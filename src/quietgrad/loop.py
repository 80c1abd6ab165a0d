"""The only optimisation loop: chunks of compiled steps, with evaluation between them, off the clock.

A chunk is a compiled loop whose first and last step are run-time numbers: a chunk of no steps compiles
it before the clock starts, and a shorter last chunk does not compile again. Step t uses keys folded
with t, so results do not depend on how steps are cut into chunks, and a chunk can be replayed.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Bool, Int, Key, PyTree

from ._checks import described, whole
from ._progress import progress_bar
from ._same import Recipe
from .estimators import AbstractEstimator, resolve
from .families import AbstractFamily
from .metrics import elbo_with_error
from .results import FitResult, History, Plateau, Reached, Status
from .steps import Carry, Job, Keys, is_key, strong
from .targets import Target

STEPS = 10_000
Monitor = Callable[[AbstractFamily, PyTree, int], Mapping[str, float]]


class Change(NamedTuple):
    """Another estimator for the steps to come (None for the same), and the seconds of finding out."""

    estimator: AbstractEstimator | None
    seconds: float


@runtime_checkable
class Switch(Protocol):
    """Asked after every evaluation whether to change the estimator; `decisions` says what it did."""

    decisions: list[Any]

    def __call__(self, q: AbstractFamily, estimator: AbstractEstimator, step: int) -> Change:
        """Stay or change."""
        ...


def fit(
    target: Target,
    q: AbstractFamily,
    *,
    estimator: AbstractEstimator | str = "nocv",
    optimizer: optax.GradientTransformation | None = None,
    steps: int = STEPS,
    batch_size: int | None = None,
    evaluate_every: int | None = None,
    evaluation_draws: int = 500,
    stop: Plateau | Reached | None = None,
    seconds: float | None = None,
    monitor: Monitor | None = None,
    switch: Switch | None = None,
    progress: bool | None = None,
    key: Key[Array, ""],
) -> FitResult:
    """Maximise the ELBO of `q` against `target`.

    `estimator` is an instance or a registered name, `optimizer` any optax transformation (Adam at 0.01
    by default). `batch_size` rows are used per step, without replacement within an epoch and the same
    for all draws of the step. The ELBO on the full data is evaluated every `evaluate_every` steps
    (a hundredth of the run by default) with `evaluation_draws` draws; neither that nor compilation
    counts in `history["seconds"]`. `stop=Plateau()` ends the run once the ELBO has stopped rising,
    `stop=Reached(value)` once it is there, and `seconds` once that much time was spent on steps (looked
    at between chunks). `monitor(q, state, step)` returns further columns of the history, also off the
    clock. `switch` may change the estimator between chunks. Ctrl-C ends the run early and returns what
    has been reached.
    """
    estimator = resolve(estimator)
    optimizer = optax.adam(1e-2) if optimizer is None else optimizer
    if not isinstance(optimizer, optax.GradientTransformation):
        made = described(optimizer)
        raise TypeError(f"optimizer must be made by optax, e.g. optax.adam(1e-2); got {made}")
    steps = whole(steps, "steps", least=1)
    every = -(-steps // 100) if evaluate_every is None else evaluate_every
    every = whole(every, "evaluate_every", least=1)
    check_key(key)
    state = estimator.init(target, q)
    if batch_size is not None:
        batch_size = target.check_batch_size(batch_size)

    params, static = eqx.partition(q, eqx.is_inexact_array)
    keys = Keys(*jr.split(key, 3))
    job = Job(target, static, estimator, Recipe(optimizer), batch_size, keys)
    carry = strong(Carry(params, optimizer.init(params), state, jnp.arange(target.rows)))

    def evaluate(carry: Carry, step: int) -> dict[str, float]:
        q = eqx.combine(carry.params, static)
        draw = jr.fold_in(keys.evaluation, step)
        value, error = elbo_with_error(target, q, draws=evaluation_draws, key=draw)
        more = {} if monitor is None else monitor(q, carry.estimator, step)
        return {"elbo": float(value), "elbo_error": float(error), **more}

    began = time.perf_counter()
    jax.block_until_ready(_run(job, carry, *_span(0, 0)))
    compile_seconds = time.perf_counter() - began
    history = History()
    history.add(0, 0.0, evaluate(carry, 0))

    status, step, verdict = Status.BUDGET, 0, Plateau() if stop is None else stop
    with progress_bar(steps, show=progress) as update:
        try:
            while step < steps:
                last = min(step + every, steps)
                began = time.perf_counter()
                after, finite = jax.block_until_ready(_run(job, carry, *_span(step, last)))
                spent = time.perf_counter() - began
                if not finite:
                    carry, end = _replay(job, carry, *_span(step, last))
                    status, step = Status.NON_FINITE, int(end)
                    break
                carry, step = after, last
                history.add(step, spent, evaluate(carry, step))
                update(step, history["elbo"][-1])
                if switch is not None:
                    change = switch(eqx.combine(carry.params, static), job.estimator, step)
                    history.extend(change.seconds)
                    if change.estimator is not None:
                        began = time.perf_counter()
                        job, carry = _changed(job, carry, change.estimator)
                        jax.block_until_ready(_run(job, carry, *_span(0, 0)))
                        compile_seconds += time.perf_counter() - began
                if stop is not None and stop.reached(history[stop.column]):
                    break
                if seconds is not None and history["seconds"][-1] >= seconds:
                    break
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
    if status is Status.BUDGET and verdict.reached(history[verdict.column]):
        status = Status.CONVERGED
    q = eqx.combine(carry.params, static)
    fresh = jr.fold_in(keys.evaluation, steps + 1)
    value, error = elbo_with_error(target, q, draws=evaluation_draws, key=fresh)
    if not jnp.isfinite(value):
        status = Status.NON_FINITE
    return FitResult(
        q=q,
        elbo=float(value),
        elbo_error=float(error),
        status=status,
        steps=step,
        history=history.arrays(),
        compile_seconds=compile_seconds,
        target=target,
        estimator=job.estimator,
        estimator_state=carry.estimator,
        decisions=() if switch is None else tuple(switch.decisions),
    )


def _changed(job: Job, carry: Carry, estimator: AbstractEstimator) -> tuple[Job, Carry]:
    """The same run with another estimator."""
    state = estimator.init(job.target, eqx.combine(carry.params, job.static))
    return eqx.tree_at(lambda j: j.estimator, job, estimator), carry._replace(estimator=strong(state))


@eqx.filter_jit
def _run(
    job: Job, carry: Carry, first: Int[Array, ""], last: Int[Array, ""]
) -> tuple[Carry, Bool[Array, ""]]:
    """Steps first, ..., last - 1, and whether the parameters are finite after them."""
    carry = jax.lax.fori_loop(first, last, lambda t, c: job.step(c, t), carry)
    return carry, _finite(carry.params)


@eqx.filter_jit
def _replay(
    job: Job, carry: Carry, first: Int[Array, ""], last: Int[Array, ""]
) -> tuple[Carry, Int[Array, ""]]:
    """Run a chunk again up to its last finite parameters; also the number of steps that led there."""

    def going(loop: tuple[Array, Carry, Carry]) -> Bool[Array, ""]:
        t, _, ahead = loop
        return (t < last) & _finite(ahead.params)

    def move(loop: tuple[Array, Carry, Carry]) -> tuple[Array, Carry, Carry]:
        t, _, ahead = loop
        return t + 1, ahead, job.step(ahead, t + 1)

    _, carry, _ = out = jax.lax.while_loop(going, move, (first, carry, job.step(carry, first)))
    return carry, out[0]


def _finite(params: PyTree) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(params)]))


def _span(first: int, last: int) -> tuple[Array, Array]:
    return jnp.asarray(first, jnp.int32), jnp.asarray(last, jnp.int32)


def check_key(key: Any) -> None:
    """Raise a `TypeError` unless `key` is a jax random key."""
    if not (isinstance(key, jax.Array) and (is_key(key) or key.dtype == jnp.uint32)):
        raise TypeError(f"key must be a jax.random.key(seed); got {type(key).__name__}")
