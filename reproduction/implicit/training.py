"""Training for a number of processor seconds: the same loop for every estimator, compilation apart."""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax

from quietgrad.families import split

CHUNK = 20
# One for all trainings, at a rate of one: another rate is no other program.
OPTIMIZER = optax.chain(optax.clip_by_global_norm(100.0), optax.adam(1.0))


@eqx.filter_jit
def _steps(estimator, target, q, state, moments, key, rate, first, span):
    """`CHUNK` steps with a rate that falls along half a cosine over `span` steps."""
    params, rebuild = split(q)

    def body(carry, t):
        params, state, moments = carry
        estimate, state = estimator.step(target, rebuild(params), state, key=jr.fold_in(key, t))
        down = 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(t / span, 1.0)))
        grad = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), -g, 0.0), estimate.grad)
        updates, moments = OPTIMIZER.update(grad, moments, params)
        now = rate * (0.01 + 0.99 * down)
        updates = jax.tree.map(lambda u: now.astype(u.dtype) * u, updates)
        return (optax.apply_updates(params, updates), state, moments), None

    (params, state, moments), _ = jax.lax.scan(body, (params, state, moments), first + jnp.arange(CHUNK))
    return rebuild(params), state, moments


def train(
    estimator: Any,
    target: Any,
    q: Any,
    *,
    seconds: float,
    rate: float,
    seed: int,
    at: tuple[float, ...] = (1.0,),
    watch: Callable[[float, int, Any, Any], None],
) -> Any:
    """Train for `seconds` of processor time; `watch(share, steps, q, state)` is called off the clock.

    The number of steps is set by the pace of the first ones, once they are compiled.
    """
    state = estimator.init(target, q)
    moments = OPTIMIZER.init(eqx.filter(q, eqx.is_inexact_array))
    key = jr.key(seed)

    def go(q, state, moments, first, span):
        settings = (jnp.asarray(x) for x in (rate, first, span))
        return jax.block_until_ready(_steps(estimator, target, q, state, moments, key, *settings))

    go(q, state, moments, 0, 1e9)
    began = time.process_time()
    trial = go(go(q, state, moments, 0, 1e9)[0], state, moments, 0, 1e9)
    del trial
    pace = (time.process_time() - began) / (2 * CHUNK)
    total = max(CHUNK, int(seconds / pace) // CHUNK * CHUNK)
    marks = [max(CHUNK, int(share * total) // CHUNK * CHUNK) for share in at]
    for step in range(0, total, CHUNK):
        q, state, moments = go(q, state, moments, step, float(total))
        for share, mark in zip(at, marks, strict=True):
            if mark == step + CHUNK:
                watch(share, mark, q, state)
    return q
