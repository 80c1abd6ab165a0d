"""`loop`: init, step and sample as pure functions, for those who write the loop themselves.

State is what a step carries, info what it tells, as in BlackJAX. `jax.lax.scan(step, state, keys)` is a
whole fit; nothing is judged, stopped or kept but what the caller judges, stops or keeps.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, Key, PyTree, UInt32

from .._numerics.lapack import over_points
from .._util.random import key_of
from ..estimators import AbstractEstimator, resolve
from ..families import REGISTRY as FAMILIES
from ..families import AbstractFamily, AbstractWithHyperparameters, beside
from ..solvers.steps import rows_of_step, strong
from ..targets import Target
from . import problem_of


class LoopState(NamedTuple):
    """What a step carries: arrays only, so that it can be scanned, vectorised and saved.

    `params` are the arrays of the family; `order` are the words of the key by which rows are shuffled
    in the present epoch; `step` counts.
    """

    params: PyTree
    optimizer: PyTree
    estimator: PyTree
    order: UInt32[Array, "2"]
    step: Int[Array, ""]


class LoopInfo(NamedTuple):
    """What a step tells: its estimate of the ELBO, the norm of the gradient, and the coefficients."""

    elbo: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    beta: PyTree


class Loop(NamedTuple):
    """Pure functions of a state; all of them can be compiled.

    `init(key)` gives the state before the first step, `step(state, key)` the next one and its info, and
    `sample(state, key, draws)` draws in the form of the target's points. `family(state)` is q, and
    `hyperparameters(state)` what is fitted beside it, None if there is nothing. `step` takes the numbers
    of the rows to use as a third argument, for those who choose their own.
    """

    init: Callable[[Key[Array, ""]], LoopState]
    step: Callable[..., tuple[LoopState, LoopInfo]]
    sample: Callable[..., PyTree]
    family: Callable[[LoopState], AbstractFamily]
    hyperparameters: Callable[[LoopState], PyTree]


def loop(
    target: Target,
    family: AbstractFamily | str = "mean-field",
    estimator: AbstractEstimator | str = "quiet",
    optimizer: optax.GradientTransformation | None = None,
    *,
    batch_size: int | None = None,
    hyperparameters: PyTree = None,
) -> Loop:
    """The steps of a fit as functions, for a loop of your own.

    Args:
        target: what is inferred, with its data in memory.
        family: a registered name, which starts at random by the key of `init`, or an instance, which is
            the start.
        estimator: of the ELBO's gradient, a registered name or an instance.
        optimizer: any optax optimiser; None is Adam at 0.01.
        batch_size: rows used in a step; None uses all of them.
        hyperparameters: as in `fit`.

    Returns:
        `init(key)`, `step(state, key)` and what reads a state, all of which can be jitted.
    """
    estimator = resolve(estimator)
    optimizer = optax.adam(1e-2) if optimizer is None else optimizer
    if isinstance(target, Target) and target.on_disk:
        raise ValueError(
            "the rows of this target stay on disk, which fit can do; a loop needs them in memory"
        )
    # Checked now, with any key: what is wrong with the call should not wait for `init`.
    made = problem_of(target, family, batch_size, hyperparameters, key=jr.key(0))
    if made.any_family:
        raise ValueError("family='auto' is for fit, which tries several; name one for a loop")
    whole, static = made.target, eqx.filter(made.q, eqx.is_inexact_array, inverse=True)
    reason = estimator.refuses(whole, made.q)
    if reason is not None:
        raise ValueError(reason)

    def init(key: Key[Array, ""]) -> LoopState:
        q = made.q
        if isinstance(family, str):
            start = FAMILIES[family].init(of_z(q).dim, key=key)
            q = beside(start, q.hyperparameters) if isinstance(q, AbstractWithHyperparameters) else start
        params = eqx.filter(q, eqx.is_inexact_array)
        params, moments, memory = strong((params, optimizer.init(params), estimator.init(whole, q)))
        return LoopState(params, moments, memory, _words(key), jnp.zeros((), jnp.int32))

    def whole_family(state: LoopState) -> AbstractFamily:
        return eqx.combine(state.params, static)

    def family_of(state: LoopState) -> AbstractFamily:
        return of_z(whole_family(state))

    def step(
        state: LoopState, key: Key[Array, ""], chosen: Int[Array, " batch"] | None = None
    ) -> tuple[LoopState, LoopInfo]:
        key_draws, key_rows = jr.split(key)
        order = state.order
        if chosen is None and batch_size is not None:
            new_epoch = state.step % (whole.rows // batch_size) == 0
            order = jnp.where(new_epoch, _words(key_rows), order)
            chosen = rows_of_step(state.step, whole.rows, batch_size, key=key_of(order))
        view = whole if chosen is None else whole.batch(chosen)
        estimate, memory = estimator.step(view, whole_family(state), state.estimator, key=key_draws)
        # Estimates point uphill and optimisers go down.
        descent = jax.tree.map(jnp.negative, estimate.grad)
        updates, moments = optimizer.update(descent, state.optimizer, state.params)
        params = optax.apply_updates(state.params, updates)
        info = LoopInfo(estimate.elbo, _norm(estimate.grad), estimate.beta)
        return LoopState(params, moments, memory, order, state.step + 1), info

    def sample(state: LoopState, key: Key[Array, ""], draws: int = 1) -> PyTree:
        return over_points(target.constrain, family_of(state).sample(key, draws))

    def hyperparameters_of(state: LoopState) -> PyTree:
        q = whole_family(state)
        return q.hyperparameters if isinstance(q, AbstractWithHyperparameters) else None

    return Loop(init, step, sample, family_of, hyperparameters_of)


def _words(key: Key[Array, ""]) -> UInt32[Array, "2"]:
    """Words for a key of our kind, from one of any kind."""
    return jr.bits(key, (2,), jnp.uint32)


def _norm(grad: PyTree) -> Float[Array, ""]:
    return jnp.sqrt(jnp.sum(jnp.stack([jnp.sum(x**2) for x in jax.tree.leaves(grad)])))


def of_z(q: AbstractFamily) -> AbstractFamily:
    """The family of the points alone."""
    return q.of_z if isinstance(q, AbstractWithHyperparameters) else q
