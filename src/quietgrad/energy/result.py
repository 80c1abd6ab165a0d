"""What a fit of an energy hands back."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from .._util.checks import check_key, whole
from .._util.compiling import program
from ..status import Status
from .annealing import LogZ, annealed
from .methods import AbstractEnergyMethod
from .moves import Mala, moved, placed
from .problem import EnergyProblem


class LogLikelihood(eqx.Module):
    """The mean log likelihood of rows, and its standard error from log Z alone."""

    value: float
    error: float


class EnergyResult(eqx.Module):
    """A fitted energy and how it came about.

    `energy` is the fitted module, or the fitted parameters where these were given with a function.
    `status` says how the fit ended, and `hint` why and what to do. `history` has arrays: `step`,
    `seconds`, `gap` (mean energy of the rows less that of the model's draws), `gradient` and `noise`
    (the norm of the mean gradient of some steps, and the deviation of one step's), `accepted`,
    `step_size` and `size` (the effective number of draws by their weights), and what the callback
    added. `chains` is where the chains ended, None where there are none.
    """

    energy: PyTree
    status: Status = eqx.field(static=True)
    hint: str = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    history: dict[str, np.ndarray]
    clock: dict[str, float]
    chains: Float[Array, "chains dim"] | None
    method: AbstractEnergyMethod
    problem: EnergyProblem
    params: PyTree

    def sample(self, key: Key[Array, ""], draws: int = 1000, *, moves: int = 500) -> Float[Array, "..."]:
        """Draws of the fitted p in the shape of the rows: MALA chains of `moves` moves each.

        They start where the chains of the fit are, and else at noise with the rows' mean and deviations;
        modes that the start does not know are not found.
        """
        check_key(key)
        draws, moves = whole(draws, "draws", least=1), whole(moves, "moves", least=2)
        flat = _sampled(self.problem, self.params, self.chains, draws, moves, key)
        return flat.reshape((draws, *self.problem.model.shape))

    def energies(self, x: Any) -> Float[Array, " points"]:
        """E at points in the shape of the rows."""
        rows = jnp.asarray(x, self.problem.data.dtype)
        return _energies(self.problem, self.params, rows.reshape(rows.shape[0], -1))

    def log_z(self, key: Key[Array, ""], *, temperatures: int = 1000, points: int = 256) -> LogZ:
        """log Z of the fitted energy by annealed importance sampling, with its standard error.

        The weights' mean is Z without bias; their log is a little low, the more so the larger the error.
        """
        check_key(key)
        counts = whole(temperatures, "temperatures", least=1), whole(points, "points", least=2)
        return annealed(self.problem, self.params, temperatures=counts[0], points=counts[1], key=key)

    def log_likelihood(
        self, key: Key[Array, ""], data: Any = None, *, temperatures: int = 1000, points: int = 256
    ) -> LogLikelihood:
        """The mean log likelihood of rows (those of the fit by default), with the error of log Z."""
        rows = self.problem.data if data is None else data
        log_z = self.log_z(key, temperatures=temperatures, points=points)
        return LogLikelihood(-float(jnp.mean(self.energies(rows))) - log_z.value, log_z.error)

    def __str__(self) -> str:
        return (
            f"energy over {self.problem.dim} coordinates after {self.steps:,} steps and "
            f"{self.clock['total']:.2f} s: {self.status}" + (f" ({self.hint})" if self.hint else "")
        )


@program
def _energies(
    problem: EnergyProblem, params: PyTree, x: Float[Array, "points dim"]
) -> Float[Array, " points"]:
    return jax.vmap(problem.model, in_axes=(None, 0))(params, x)


@program
def _sampled(
    problem: EnergyProblem,
    params: PyTree,
    chains: Float[Array, "chains dim"] | None,
    draws: int,
    moves: int,
    key: Key[Array, ""],
) -> Float[Array, "draws dim"]:
    move, dtype = Mala(), problem.data.dtype
    key_start, key_first, key_last = jr.split(key, 3)
    if chains is None:
        x = problem.noise(jr.normal(key_start, (draws, problem.dim), dtype))
    else:
        x = chains[jr.randint(key_start, (draws,), 0, chains.shape[0])]
    log_step = jnp.log(jnp.asarray(move.start(problem.dim), dtype))
    at = placed(problem.model, params, x, log_step)
    # Steps of the second half have a fixed size, and leave p as it is.
    halves = (key_first, moves // 2, True), (key_last, moves - moves // 2, False)
    for own, count, adapt in halves:
        at, _ = moved(move, problem.model, params, at, problem.scale, count, adapt=adapt, key=own)
    return at.x
