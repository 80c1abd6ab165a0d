"""Timing of compiled steps: interleaved runs in one process, ratios of medians over rounds.

Machines are shared and noisy, so candidates take turns, every round gives one ratio per candidate, and
the median ratio is what counts. A step is timed inside a compiled loop, so that dispatch from Python
does not show.
"""

import json
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from quietgrad._util.environment import environment

REST = 0.2
RESULTS = Path(__file__).parent / "results"


def loop(step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Compile `count` steps; `step(carry, key)` returns the next carry."""

    @eqx.filter_jit
    def run(carry: Any, key: jax.Array, count: jax.Array) -> Any:
        dynamic, static = eqx.partition(carry, eqx.is_array)

        def body(t: jax.Array, dynamic: Any) -> Any:
            after = step(eqx.combine(dynamic, static), jr.fold_in(key, t))
            return eqx.filter(after, eqx.is_array)

        return jax.lax.fori_loop(0, count, body, dynamic)

    return run


def estimator_step(target: Any, q: Any, estimator: Any) -> tuple[Callable[[Any, Any], Any], Any]:
    """A step of an estimator at a fixed q, with its gradients summed up so that none is dropped."""

    def step(carry: Any, key: jax.Array) -> Any:
        target, q, state, total, elbo = carry
        estimate, state = estimator.step(target, q, state, key=key)
        total = jax.tree.map(jnp.add, total, estimate.grad)
        return target, q, state, total, elbo + estimate.elbo

    zero = jax.tree.map(jnp.zeros_like, eqx.filter(q, eqx.is_inexact_array))
    return step, (target, q, estimator.init(target, q), zero, jnp.zeros((), q.dtype))


def bare_step(target: Any, q: Any, draws: int) -> tuple[Callable[[Any, Any], Any], Any]:
    """What no estimator can avoid: draw, and evaluate value and gradient of the target at the draws."""

    def step(carry: Any, key: jax.Array) -> Any:
        target, total, elbo = carry
        z = jr.normal(key, (draws, q.dim), q.dtype)
        value, slope = jax.vmap(jax.value_and_grad(target.log_density))(z)
        return target, total + jnp.sum(slope, axis=0), elbo + jnp.sum(value)

    return step, (target, jnp.zeros(q.dim, q.dtype), jnp.zeros((), q.dtype))


def interleave(
    candidates: Mapping[str, tuple[Callable[[Any, Any], Any], Any]],
    baseline: str,
    *,
    rounds: int,
    seconds: float = 0.15,
) -> dict[str, dict[str, float]]:
    """Microseconds a step and the ratio to `baseline`, medians over `rounds` turns."""
    key = jr.key(0)
    runs = {name: (loop(step), carry) for name, (step, carry) in candidates.items()}
    counts = {}
    for name, (run, carry) in runs.items():
        jax.block_until_ready(run(carry, key, jnp.asarray(1)))
        trial = _time(run, carry, key, 50) / 50
        counts[name] = max(20, int(seconds / trial))
    times: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for turn in range(rounds):
        # Who comes first changes, so that no one has the better place in all rounds.
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            run, carry = runs[name]
            # LAPACK's threads go on spinning for a while after the candidate that used them.
            time.sleep(REST)
            _time(run, carry, key, counts[name] // 5)
            spent = _time(run, carry, jr.fold_in(key, turn), counts[name])
            times[name].append(spent / counts[name])
    return {
        name: {
            "microseconds": 1e6 * statistics.median(own),
            "ratio": statistics.median(a / b for a, b in zip(own, times[baseline], strict=True)),
        }
        for name, own in times.items()
    }


def _time(run: Any, carry: Any, key: jax.Array, count: int) -> float:
    began = time.perf_counter()
    jax.block_until_ready(run(carry, key, jnp.asarray(count)))
    return time.perf_counter() - began


def save(name: str, rows: list[dict[str, Any]]) -> Path:
    """Write rows with the environment they were measured in."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    about = json.dumps({"format": 1, "environment": environment()})
    lines = ",\n".join(json.dumps(row) for row in rows)
    path.write_text(f'{about[:-1]}, "rows": [\n{lines}\n]}}\n')
    return path
