"""Part (c): exact log likelihood at equal processor seconds, and the error of the gradient there."""

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import quietgrad as qg
from quietgrad.energy import SteinWeighting, UniformWeighting

from .energies import PROBLEMS


def rows(name: str, method: str, spec: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Held-back log likelihood of one fit whose number of steps is set by its pace."""
    problem = PROBLEMS[name]()
    batch = min(spec["batch"], len(problem.train))

    def fit(steps: int) -> Any:
        settings = {"method": method, "steps": steps, "batch_size": batch, "rate": spec["rate"]}
        return qg.fit_energy(problem.energy, problem.train, key=jr.key(seed), progress=False, **settings)

    fit(20)
    began = time.process_time()
    fit(100)
    pace = (time.process_time() - began) / 100
    steps = max(100, int(spec["seconds"] / pace))
    began = time.process_time()
    result = fit(steps)
    took = time.process_time() - began
    row = {
        "problem": name,
        "method": method,
        "seed": seed,
        "steps": steps,
        "seconds": took,
        "status": str(result.status),
        **_likelihood(problem, result, spec),
    }
    if method == "stein" and problem.train.shape[1] > 2:
        row |= gradient_errors(result, spec, seed)
    return [row]


def _likelihood(problem: Any, result: Any, spec: dict[str, Any]) -> dict[str, float]:
    energies = np.asarray(result.energies(problem.test))
    if problem.log_z is not None:
        return {
            "log_likelihood": float(-energies.mean() - problem.log_z(result.energy)),
            "log_z_error": 0.0,
        }
    found = result.log_z(jr.key(1), temperatures=spec["temperatures"], points=256)
    return {"log_likelihood": float(-energies.mean() - found.value), "log_z_error": found.error}


def gradient_errors(result: Any, spec: dict[str, Any], seed: int) -> dict[str, float]:
    """Mean squared error of E_p grad E from L = 2d ... draws, Stein weights over the plain mean.

    Draws are long chains of the fitted energy; the truth is the mean over many more of them.
    """
    dim = result.problem.dim
    count, sets = 4 * dim, 40
    x = jnp.asarray(np.asarray(result.sample(jr.key(seed + 7), sets * count, moves=spec["moves"])))
    x = x.reshape(sets * count, dim)
    params, problem = result.params, result.problem
    slope = jax.vmap(jax.grad(problem.model, argnums=1), in_axes=(None, 0))(params, x)

    def weighted(x: Any, w: Any) -> Any:
        grad = jax.grad(lambda p: w @ jax.vmap(problem.model, in_axes=(None, 0))(p, x))(params)
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(grad)])

    weightings = {
        "plain": UniformWeighting(),
        "order1": SteinWeighting(order=1),
        "order2": SteinWeighting(order=2),
    }
    truth = eqx.filter_jit(weighted)(x, jnp.full(len(x), 1 / len(x), x.dtype))
    parts = x.reshape(sets, count, dim), -slope.reshape(sets, count, dim)
    mse = {}
    for key, weighting in weightings.items():
        each = eqx.filter_jit(jax.vmap(lambda x, s, rule=weighting: weighted(x, rule(x, s))))(*parts)
        mse[key] = float(jnp.mean(jnp.sum((each - truth[None]) ** 2, axis=1)))
    return {
        "gradient_draws": count,
        "gradient_ratio_order1": mse["order1"] / mse["plain"],
        "gradient_ratio_order2": mse["order2"] / mse["plain"],
    }
