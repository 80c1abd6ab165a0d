"""BlackJAX: mean-field and full-rank VI, and pathfinder."""

import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import optax

from .snapshot import Snapshot, diagonal, triangular

STEPS, PIECE = 5_000, 250
SETTINGS = f"meanfield_vi, fullrank_vi with their 100 draws, Adam, at most {STEPS:,} steps"
PATHFINDER_SETTINGS = "its defaults, one path from a start in (-2, 2)"


def vi(target: Any, family: str, rate: float, *, key: Any) -> Iterator[Snapshot]:
    """`init`, then compiled pieces of `step`."""
    import blackjax

    began = time.perf_counter()
    made = {"mean-field": blackjax.meanfield_vi, "full-rank": blackjax.fullrank_vi}[family]
    algorithm = made(target.log_density, optax.adam(rate))
    state = algorithm.init(jnp.zeros(target.dim))

    @jax.jit
    def piece(state: Any, key: Any) -> Any:
        return jax.lax.scan(lambda s, k: (algorithm.step(k, s)[0], None), state, jr.split(key, PIECE))[0]

    for number in range(1, STEPS // PIECE + 1):
        state = jax.block_until_ready(piece(state, jr.fold_in(key, number)))
        seconds = time.perf_counter() - began
        yield Snapshot(seconds, number * PIECE, _draw(family, state))
        # What the snapshot cost is not this tool's.
        began += time.perf_counter() - began - seconds


def pathfinder(target: Any, family: str, rate: None, *, key: Any) -> Iterator[Snapshot]:
    """One answer, at its end; a Gaussian with correlations from the path's gradients."""
    from blackjax.vi.pathfinder import approximate, sample

    del family, rate
    began = time.perf_counter()
    key_start, key_path = jr.split(key)
    start = jr.uniform(key_start, (target.dim,), minval=-2.0, maxval=2.0)
    state, _ = jax.block_until_ready(
        jax.jit(lambda key, start: approximate(key, target.log_density, start))(key_path, start)
    )
    yield Snapshot(time.perf_counter() - began, 1, lambda key, count: sample(key, state, count))


def _draw(family: str, state: Any) -> Any:
    if family == "mean-field":
        return diagonal(state.mu, jnp.exp(state.rho))
    dim = state.mu.size
    root = jnp.zeros((dim, dim)).at[jnp.tril_indices(dim, -1)].set(state.chol_params[dim:])
    return triangular(state.mu, root + jnp.diag(jnp.exp(state.chol_params[:dim])))
