"""Part (c): exact log likelihood at equal processor seconds."""

import functools
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import quietgrad as qg
from quietgrad.energy import AbstractEnergyMethod
from quietgrad.energy.methods import REGISTRY

from .energies import PROBLEMS, Problem

# Steps from whose time the pace is first found, and by how much a fit may miss its seconds.
TRIAL, SLACK = 500, 0.1
# From the number of chains. That number and the rate are chosen on other seeds (`tuned`).
METHODS: dict[str, Callable[[int], AbstractEnergyMethod]] = {
    "stein": lambda chains: REGISTRY["stein"](chains=chains),
    "pcd": lambda chains: REGISTRY["pcd"](chains=chains),
    "cd": lambda chains: REGISTRY["cd"](chains=chains),
    "jarzynski": lambda chains: REGISTRY["jarzynski"](chains=chains),
    "score-matching": lambda chains: REGISTRY["score-matching"](),  # noqa: ARG005  it has none
}
CHAINS, RATE = 64, 0.01


@functools.cache
def problem_of(name: str) -> Problem:
    """The problem of this name, the same each time: programs serve every seed."""
    return PROBLEMS[name]()


def tuning(name: str, method: str, spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Fits of the tuning seeds with every number of chains and every rate, the same for all methods."""
    return [
        row
        for chains in spec["tuning"]["chains"]
        for row in _fitted(name, method, spec, chains, spec["tuning"]["rates"], spec["tuning"]["seeds"])
    ]


def tuned(rows: list[dict[str, Any]]) -> tuple[int, float]:
    """Chains and rate with the highest likelihood of the fitted rows, mean over the tuning seeds."""
    reached: dict[tuple[int, float], list[float]] = defaultdict(list)
    for row in rows:
        value = row["train"] if np.isfinite(row["train"]) else -np.inf
        reached[row["chains"], row["rate"]].append(value)
    return max(reached, key=lambda setting: np.mean(reached[setting])) if rows else (CHAINS, RATE)


def rows(
    name: str, method: str, spec: dict[str, Any], seed: int, tried: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Log likelihood of one fit with the settings that were the best of `tried`."""
    chains, rate = tuned(tried)
    return _fitted(name, method, spec, chains, [rate], [seed])


def _fitted(
    name: str, method: str, spec: dict[str, Any], chains: int, rates: list[float], seeds: list[int]
) -> list[dict[str, Any]]:
    """Fits with as many steps as take the seconds, by the pace of the fit before."""
    problem, made = problem_of(name), METHODS[method](chains)

    def fit(steps: int, rate: float, seed: int) -> tuple[Any, float]:
        began = time.process_time()
        result = qg.fit_energy(
            problem.energy,
            problem.train,
            method=made,
            steps=steps,
            batch_size=spec.get("batch"),
            rate=rate,
            key=jr.key(seed),
            progress=False,
        )
        return result, time.process_time() - began

    fit(TRIAL, rates[0], seeds[0])
    steps = max(1, int(spec["seconds"] / fit(TRIAL, rates[0], seeds[0])[1] * TRIAL))
    found = []
    for rate in rates:
        for seed in seeds:
            result, took = fit(steps, rate, seed)
            if abs(took / spec["seconds"] - 1) > SLACK:
                steps = max(1, int(steps * spec["seconds"] / took))
                result, took = fit(steps, rate, seed)
            settings = {"problem": name, "method": method, "seed": seed, "chains": chains, "rate": rate}
            ends = {"steps": result.steps, "seconds": took, "status": str(result.status)}
            found.append(settings | ends | _likelihood(problem, result, spec))
    return found


def _likelihood(problem: Problem, result: Any, spec: dict[str, Any]) -> dict[str, float]:
    """Of the rows of the fit and of those held back; exact but for AIS where log Z is not known."""
    if problem.log_z is None:
        found = result.log_z(jr.key(1), temperatures=spec["temperatures"], points=256)
        log_z, error = found.value, found.error
    else:
        log_z, error = exactly(problem.log_z, result.energy), 0.0
    test, train = (
        exactly(_mean_energy, result.energy, np.asarray(x, float)) for x in (problem.test, problem.train)
    )
    return {"log_likelihood": -test - log_z, "train": -train - log_z, "log_z_error": error}


def exactly(function: Any, energy: Any, *arguments: Any) -> float:
    """A function of an energy, in double precision."""
    with jax.enable_x64(True):  # noqa: FBT003  the name of the setting says what it is
        double = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, float)), energy)
        return float(function(double, *arguments))


@jax.jit
def _mean_energy(energy: Any, x: Any) -> Any:
    return jnp.mean(jax.vmap(energy)(x))
