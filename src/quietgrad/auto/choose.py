"""Which estimator once noise dominates: the least variance x cost, in the optimiser's norm.

Near the optimum the noise of the fit is proportional to the gradient's variance and falls with the
number of steps taken, so what counts is variance times the cost of a step. The variance is taken in
Adam's norm, sum_i Var(g_i) / E g_i^2: the bare trace would speak of a few large coordinates only. With
minibatches both share the rows' noise, which more draws cannot remove.
"""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from ..estimators import AbstractEstimator, Pathwise
from ..families import AbstractFamily, AbstractFlow, LowRank
from ..targets import Target

REPEATS = 32
TIMED_STEPS, TIMED_TURNS = 20, 3


def cheapest(q: AbstractFamily) -> Pathwise:
    """The estimator for the way: few quiet draws."""
    wide = isinstance(q, AbstractFlow | LowRank)
    sampler = "iid" if isinstance(q, LowRank) else "antithetic"
    return Pathwise(sampler=sampler, entropy="stl", draws=10 if wide else 2)


def candidates(q: AbstractFamily) -> dict[str, Pathwise]:
    """What auto chooses from, by name."""
    base = cheapest(q)
    field = {}
    for factor in (1, 4, 16):
        draws = base.draws * factor
        pair = Pathwise(sampler=base.sampler, entropy="stl", draws=draws)
        field[name_of(pair)] = pair
        spread = Pathwise(sampler="rqmc", entropy="stl", draws=draws)
        if spread.sampler.refuses(draws, q.base, q.base_dim) is None:
            field[name_of(spread)] = spread
    return field


def name_of(estimator: AbstractEstimator) -> str:
    """A short name for the journal."""
    if not isinstance(estimator, Pathwise):
        return type(estimator).__name__
    sampler = type(estimator.sampler).__name__.lower()
    return f"{sampler} + {type(estimator.entropy).__name__} with {estimator.draws} draws"


def measure(
    target: Target,
    q: AbstractFamily,
    field: dict[str, Pathwise],
    square: PyTree,
    batch_size: int | None,
    *,
    by_clock: bool,
    key: Key[Array, ""],
) -> dict[str, float]:
    """Variance x cost of every candidate at q; seconds, or gradient evaluations if not by the clock."""
    variance = {
        name: float(_variance(target, q, est, square, batch_size, key)) for name, est in field.items()
    }
    if not by_clock:
        return {name: variance[name] * field[name].draws for name in field}
    runs: dict[str, Any] = {}
    for name, est in field.items():
        runs[name] = lambda est=est: jax.block_until_ready(_steps(target, q, est, batch_size, key))
        runs[name]()
    cost = dict.fromkeys(field, float("inf"))
    for _ in range(TIMED_TURNS):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            cost[name] = min(cost[name], (time.perf_counter() - began) / TIMED_STEPS)
    return {name: variance[name] * cost[name] for name in field}


def _rows(target: Target, batch_size: int | None, key: Key[Array, ""]) -> Target:
    if batch_size is None:
        return target
    return target.batch(jr.choice(key, target.rows, (batch_size,), replace=False))


@eqx.filter_jit
def _variance(
    target: Target,
    q: AbstractFamily,
    estimator: Pathwise,
    square: PyTree,
    batch_size: int | None,
    key: Key[Array, ""],
) -> Float[Array, ""]:
    state = estimator._init(target, q)

    def gradient(key: Key[Array, ""]) -> PyTree:
        key_rows, key_step = jr.split(key)
        view = _rows(target, batch_size, key_rows)
        return estimator.step(view, q, state, key=key_step)[0].grad

    grads = jax.lax.map(gradient, jr.split(key, REPEATS))
    noise = jax.tree.map(lambda g, v: jnp.sum(jnp.var(g, axis=0) / (v + 1e-12)), grads, square)
    return jnp.sum(jnp.stack(jax.tree.leaves(noise)))


@eqx.filter_jit
def _steps(
    target: Target, q: AbstractFamily, estimator: Pathwise, batch_size: int | None, key: Key[Array, ""]
) -> PyTree:
    state = estimator._init(target, q)

    def body(t: Array, total: PyTree) -> PyTree:
        key_rows, key_step = jr.split(jr.fold_in(key, t))
        view = _rows(target, batch_size, key_rows)
        grad = estimator.step(view, q, state, key=key_step)[0].grad
        return jax.tree.map(jnp.add, total, grad)

    zero = jax.tree.map(jnp.zeros_like, eqx.filter(q, eqx.is_inexact_array))
    return jax.lax.fori_loop(0, TIMED_STEPS, body, zero)
