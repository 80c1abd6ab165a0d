"""Part (c): exact log likelihood at equal processor seconds."""

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import quietgrad as qg
from quietgrad.energy import AbstractEnergyMethod, SteinWeighting
from quietgrad.energy.methods import REGISTRY

from .energies import PROBLEMS, Problem

# Steps from whose times the pace is found, beyond what every call takes.
SHORT, LONG = 100, 500
# Persistent chains, 256 of them as usual; 64 with all points of their moves take about as long a step.
METHODS: dict[str, AbstractEnergyMethod] = {
    "stein": REGISTRY["stein"](chains=64),
    "stein-ends": REGISTRY["stein"](recycle=False, weighting=SteinWeighting()),
    "pcd": REGISTRY["pcd"](chains=256),
    "pcd-64": REGISTRY["pcd"](chains=64),
    "cd": REGISTRY["cd"](chains=256),
    "jarzynski": REGISTRY["jarzynski"](),
    "score-matching": REGISTRY["score-matching"](),
}


@functools.cache
def problem_of(name: str) -> Problem:
    """The problem of this name, the same each time: programs serve every seed."""
    return PROBLEMS[name]()


def rows(name: str, method: str, spec: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Log likelihood of one fit whose number of steps is set by its pace."""
    problem = problem_of(name)

    def fit(steps: int) -> tuple[Any, float]:
        settings = {"steps": steps, "batch_size": spec["batch"], "rate": spec["rate"]}
        began = time.process_time()
        result = qg.fit_energy(
            problem.energy,
            problem.train,
            method=METHODS[method],
            key=jr.key(seed),
            progress=False,
            **settings,
        )
        return result, time.process_time() - began

    fit(SHORT)
    short, long = fit(SHORT)[1], fit(LONG)[1]
    pace = max((long - short) / (LONG - SHORT), 1e-6)
    steps = max(SHORT, int((spec["seconds"] - short) / pace) + SHORT)
    result, took = fit(steps)
    ends = {"steps": result.steps, "seconds": took, "status": str(result.status)}
    found = _likelihood(problem, result, spec)
    return [{"problem": name, "method": method, "seed": seed, **ends, **found}]


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
