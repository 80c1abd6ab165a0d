"""Part (c): the error of E_p grad E along training, from exact draws and the moves that follow them."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree

import quietgrad as qg
from quietgrad.energy import Mala, SteinWeighting, UniformWeighting
from quietgrad.energy.moves import moved, placed, recycled
from quietgrad.energy.problem import EnergyProblem
from quietgrad.energy.problem import problem_of as prepared
from quietgrad.energy.weighting import AbstractWeighting
from quietgrad.estimators.weights import Ridge

from .energies_cell import CHAINS, METHODS, problem_of

# Moves of 256 chains in which the step size settles.
SETTLING = 150
MOVES = 5


class Rule(NamedTuple):
    """A weighting, and whether it is for all points of the moves or for where they end."""

    weighting: AbstractWeighting
    every: bool = False


RULES = {
    "plain mean": Rule(UniformWeighting()),
    "plain mean of all points": Rule(UniformWeighting(), every=True),
    "order 1, ends": Rule(SteinWeighting(1)),
    "order 2, ends": Rule(SteinWeighting(2)),
    "order 1, all points": Rule(SteinWeighting(1), every=True),
    "order 2, all points": Rule(SteinWeighting(2), every=True),
    "order 2, all points, penalty 0.001": Rule(SteinWeighting(2, solver=Ridge(1e-3)), every=True),
    "order 2, all points, penalty 0.1": Rule(SteinWeighting(2, solver=Ridge(0.1)), every=True),
    "the default": Rule(SteinWeighting(), every=True),
}


def rows(name: str, times: int, spec: dict[str, Any], seed: int) -> list[dict[str, Any]]:
    """Mean squared errors from `times` d chains at several moments of a fit by Stein weights."""
    problem, found = problem_of(name), []
    if problem.draws is None:
        raise ValueError(f"{name} has no exact draws")
    dim = problem.train.shape[1]
    for share, energy in _along(problem, spec, seed).items():
        made, params = prepared(energy, problem.train)
        step = _step(made, params, problem.draws(energy, jr.key(seed), 256))
        errors = _errors(name, energy, made, params, step, times * dim, spec["repeats"], jr.key(seed))
        row = {"problem": name, "seed": seed, "share": share, "chains_over_dim": times, "dim": dim}
        for rule in RULES:
            mse = float(np.mean(errors[rule]))
            found.append(row | {"rule": rule, "mse": mse, "step_size": float(jnp.exp(step))})
    return found


def _along(problem: Any, spec: dict[str, Any], seed: int) -> dict[float, Any]:
    """The energy at its start and after these shares of the steps."""
    steps, caught = spec["steps"], {0.0: problem.energy}

    def watch(moment: Any) -> None:
        for share in spec["shares"]:
            if share not in caught and moment.step >= share * steps:
                caught[share] = moment.energy

    settings = {"steps": steps, "batch_size": spec["batch"], "rate": spec["rate"], "callback": watch}
    key = jr.key(seed)
    method = METHODS["stein"](CHAINS)
    qg.fit_energy(problem.energy, problem.train, method=method, key=key, progress=False, **settings)
    return caught


@eqx.filter_jit
def _step(made: EnergyProblem, params: Any, x: Any) -> Any:
    """The log step size that adaptation ends at."""
    move = Mala()
    chains = placed(made.model, params, x, jnp.log(jnp.asarray(move.start(made.dim), x.dtype)))
    run = move, made.model, params, chains, made.scale, SETTLING
    return moved(*run, adapt=True, key=jr.key(1))[0].log_step


@eqx.filter_jit
def _errors(
    name: str,
    energy: Any,
    made: EnergyProblem,
    params: Any,
    step: Any,
    chains: int,
    repeats: int,
    key: Any,
) -> dict[str, Any]:
    """Squared errors of independent sets of chains that begin at exact draws."""
    exact, log_z = problem_of(name).draws, problem_of(name).log_z
    assert exact is not None
    assert log_z is not None
    truth = -ravel_pytree(jax.grad(log_z)(energy))[0]

    def estimate(x: Any, w: Any) -> Any:
        mean = lambda p: w @ jax.vmap(made.model, in_axes=(None, 0))(p, x)  # noqa: E731
        return ravel_pytree(jax.grad(mean)(params))[0]

    def once(key: Any) -> dict[str, Any]:
        key_draws, key_moves = jr.split(key)
        at = placed(made.model, params, exact(energy, key_draws, chains), step)
        run = Mala(), made.model, params, at, made.scale, MOVES
        ends, _, points = recycled(*run, adapt=False, key=key_moves)
        found = {}
        for title, rule in RULES.items():
            if rule.every:
                x, w = points.x, rule.weighting(points.x, -points.slope, points.mass)
            else:
                x, w = ends.x, rule.weighting(ends.x, -ends.slope)
            found[title] = jnp.sum((estimate(x, w) - truth) ** 2)
        return found

    return jax.lax.map(once, jr.split(key, repeats), batch_size=10)
