"""What a fit hands back: the fitted family, how it ended, and how it came about."""

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key, PyTree, UInt32

from ._checks import whole
from ._extras import adapter
from ._random import key_words
from .diagnostics.diagnose import diagnose
from .diagnostics.diagnosis import Diagnosis, Ending, Restart
from .diagnostics.draws import moments
from .diagnostics.for_nuts import NutsStart, nuts_start
from .diagnostics.linear_response import LinearResponse, linear_response
from .diagnostics.posterior import PosteriorDraws, corrected
from .estimators import AbstractEstimator
from .families import AbstractFamily
from .targets import Target


class Status(enum.StrEnum):
    """How a fit ended. Only `CONVERGED` says that the answer is where the method was going."""

    CONVERGED = "converged"
    BUDGET = "budget"
    INTERRUPTED = "interrupted"
    STALLED = "stalled"
    NON_FINITE = "non-finite"
    UNBOUNDED = "unbounded"
    COLLAPSED = "collapsed"

    @property
    def failed(self) -> bool:
        """Whether the target or the numbers stood in the way, so that more time would not help."""
        return self in (Status.STALLED, Status.NON_FINITE, Status.UNBOUNDED, Status.COLLAPSED)


class Plateau(eqx.Module):
    """The ELBO has stopped rising: the last fifth of the evaluations gains less than `nats`.

    The gain is the mean of the last fifth over that of the fifth before, and its standard error
    (from the evaluations' own spread) is added to it: a noisy plateau must be longer to count.
    """

    nats: float = 0.5
    least: int = 10
    column: str = "elbo"

    def reached(self, elbo: Sequence[float | int]) -> bool:
        """Whether a run with these evaluations has arrived."""
        count = len(elbo) // 5
        if len(elbo) < self.least or count < 2:
            return False
        before, after = np.asarray(elbo[-2 * count : -count]), np.asarray(elbo[-count:])
        if not np.all(np.isfinite([before, after])):
            return False
        gain = np.mean(after) - np.mean(before)
        error = np.sqrt((np.var(before, ddof=1) + np.var(after, ddof=1)) / count)
        return bool(gain + error < self.nats)


class Reached(eqx.Module):
    """The ELBO, or another column of the history, is at `value` or above."""

    value: float
    column: str = "elbo"

    def reached(self, values: Sequence[float | int]) -> bool:
        """Whether the last evaluation is there."""
        return bool(values) and values[-1] >= self.value


class History:
    """Rows of evaluations, each with a step, its seconds and an ELBO; other columns may be missing."""

    def __init__(self) -> None:
        self._rows: list[dict[str, float | int]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: Mapping[str, float | int]) -> None:
        """Add one evaluation; the row is taken in whole or, if interrupted, not at all."""
        self._rows.append(dict(row))

    def column(self, name: str) -> list[float | int]:
        """One column; NaN where an evaluation did not have it."""
        return [row.get(name, math.nan) for row in self._rows]

    def arrays(self) -> dict[str, np.ndarray]:
        """The columns as arrays, in the order in which they first appeared."""
        names = dict.fromkeys(name for row in self._rows for name in row)
        return {name: np.asarray(self.column(name)) for name in names}


class FitResult(eqx.Module):
    """A fitted family and how it came about.

    `elbo` is a fresh evaluation of `q` on the full data, with standard error `elbo_error`. `status` says
    how the fit ended, and `hint` in a sentence why and what to do. `history` has arrays `step`,
    `seconds` (of optimisation), `wall` (of the whole wait), `elbo`, `elbo_error`, and what the callback
    added. `clock` splits the wall clock of the call into `compile`, `optimise`, `evaluate` and `other`
    seconds, with their `total`. `evaluation` says with how many draws and how often the ELBO was judged.
    """

    q: AbstractFamily
    elbo: float
    elbo_error: float
    status: Status = eqx.field(static=True)
    hint: str = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    history: dict[str, np.ndarray]
    clock: dict[str, float]
    evaluation: str = eqx.field(static=True)
    programs: int = eqx.field(static=True)
    target: Target
    method: eqx.Module
    estimator: AbstractEstimator | None
    estimator_state: PyTree
    decisions: tuple[Any, ...] = ()
    # Two words of a key of its own, from which a diagnosis takes its random numbers.
    words: UInt32[Array, "2"] | None = None
    # What was fitted beside q, in the form in which it was given; `target` and `q` are those given it.
    hyperparameters: PyTree = None

    @property
    def seconds(self) -> float:
        """Seconds of optimisation."""
        return self.clock["optimise"]

    def explain(self) -> str:
        """How the fit went, in words: what the method decided, one decision a line, and the end."""
        lines = [*map(str, self.decisions), str(self), self.evaluation]
        return "\n".join(lines)

    def sample(self, key: Key[Array, ""], draws: int = 1000) -> Any:
        """Draws from `q` in the form of the target's points (vectors, or its pytree).

        For a target that was made from a NumPyro or PyMC model they come in the model's names and on its
        constrained scale, with its deterministic variables.
        """
        return _constrained(self.target, self.q.sample(key, draws))

    def predictive(self, key: Key[Array, ""], *args: Any, draws: int = 1000, **kwargs: Any) -> Any:
        """Observed variables of a NumPyro or PyMC model, drawn anew for each of `draws` draws from `q`.

        `args` and `kwargs` are what the model is called with; without any, as it was for the fit.
        """
        if self.target.model is None:
            raise ValueError(
                "this target has a density only, from which data cannot be drawn; make it with "
                "Target.from_numpyro or Target.from_pymc"
            )
        key_draws, key_data = jax.random.split(key)
        drawn = self.sample(key_draws, draws)
        return self.target.model.predictive(drawn, args, kwargs, key=key_data)

    def to_arviz(self, draws: int = 1000) -> Any:
        """Draws of q as an ArviZ `DataTree`, with their log weights, likelihoods, data and labels.

        `sample_stats` has `lp` and `log_q`, which `arviz_stats.loo_approximate_posterior` takes.
        """
        seed = int(self._rng(3).integers(2**31))
        draws = whole(draws, "draws", least=1)
        return adapter("arviz").to_arviz(self.target, self.q, jax.random.key(seed), draws)

    def summary(self, draws: int = 4000, **settings: Any) -> Any:
        """Mean, standard deviation and interval of every variable, by `arviz_stats.summary`."""
        return adapter("arviz").summary(self.to_arviz(draws), **settings)

    def posterior(self, key: Key[Array, ""], draws: int = 1000) -> PosteriorDraws:
        """Draws of q corrected by importance weights; `print` says how far they can be relied on."""
        rng = np.random.default_rng(key_words(key))
        found = corrected(self.target, self.q, rng, whole(draws, "draws", least=1))
        return dataclasses.replace(found, points=_constrained(self.target, found.points))

    def diagnose(self, draws: int = 2000, restarts: Sequence["FitResult"] = ()) -> Diagnosis:
        """One verdict (trust, use the corrected draws, do not trust), why, and what to do.

        Takes about as long as the fit: `draws` for importance weights, then short chains and climbs.
        `restarts` are other fits of the same target, which should agree with this one.
        """
        rng = self._rng(0)
        converged = self.status is Status.CONVERGED
        ending = Ending(str(self.status), self.hint, converged, self.status.failed)
        others = [Restart(*moments(other.q, rng), other.elbo, other.elbo_error) for other in restarts]
        draws = whole(draws, "draws", least=1)
        return diagnose(self.target, self.q, ending, rng, draws=draws, restarts=others)

    def linear_response(self, coordinates: Sequence[int] | None = None) -> LinearResponse:
        """Scales, or covariances of some coordinates, beyond what q can follow (Giordano et al. 2018).

        For location-scale families, mean-field above all. Each coordinate is a linear system, which
        takes some ten to fifty products with the Hessian of the ELBO.
        """
        return linear_response(self.target, self.q, self._rng(1), coordinates)

    def for_nuts(self, chains: int = 4, *, dense: bool | None = None) -> NutsStart:
        """Starting points and an inverse mass matrix for NumPyro's or BlackJAX's NUTS."""
        chains = whole(chains, "chains", least=1)
        return nuts_start(self.target, self.q, self._rng(2), chains, dense=dense)

    def _rng(self, stream: int) -> np.random.Generator:
        words = [0, 0] if self.words is None else key_words(self.words)
        return np.random.default_rng([*words, stream])

    def __str__(self) -> str:
        clock = self.clock
        return (
            f"{type(self.q).__name__} of dim {self.q.dim}: ELBO {self.elbo:.2f} ± {self.elbo_error:.2f} "
            f"after {self.steps:,} steps and {clock['total']:.2f} s ({clock['compile']:.2f} compiling, "
            f"{clock['optimise']:.2f} optimising, {clock['evaluate']:.2f} evaluating, "
            f"{clock['other']:.2f} other); {self.status}: {self.hint}"
        )


@eqx.filter_jit
def _constrained(target: Target, z: Float[Array, "draws dim"]) -> Any:
    return jax.vmap(target.constrain)(z)
