"""What a fit hands back, and the verdict on whether it has arrived."""

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key, PyTree

from .estimators import AbstractEstimator
from .families import AbstractFamily
from .targets import Target


class Status(enum.StrEnum):
    """How a fit ended."""

    CONVERGED = "converged"
    BUDGET = "budget"
    NON_FINITE = "non-finite"
    INTERRUPTED = "interrupted"


HINTS = {
    Status.CONVERGED: "the ELBO has stopped rising",
    Status.BUDGET: "the ELBO was still rising, or too noisy to tell; give more steps",
    Status.NON_FINITE: (
        "the parameters or the ELBO turned NaN or infinite after this step, and q holds the last finite "
        "parameters; try a smaller learning rate, optax.clip_by_global_norm, more draws, or check the "
        "log density for log(0), sqrt(0) or overflow far from the mode"
    ),
    Status.INTERRUPTED: "stopped by the user; fit(target, result.q, ...) goes on from here",
}


class Plateau(eqx.Module):
    """The ELBO has stopped rising: the last fifth of the evaluations gains less than `nats`.

    The gain is the mean of the last fifth over that of the fifth before, and its standard error
    (from the evaluations' own spread) is added to it: a noisy plateau must be longer to count.
    """

    nats: float = 0.5
    least: int = 10
    column: str = "elbo"

    def reached(self, elbo: Sequence[float]) -> bool:
        """Whether a run with these evaluations has arrived."""
        count = len(elbo) // 5
        if len(elbo) < self.least or count < 2:
            return False
        before, after = np.asarray(elbo[-2 * count : -count]), np.asarray(elbo[-count:])
        gain = np.mean(after) - np.mean(before)
        error = np.sqrt((np.var(before, ddof=1) + np.var(after, ddof=1)) / count)
        return bool(gain + error < self.nats)


class Reached(eqx.Module):
    """The ELBO, or another column of the history, is at `value` or above."""

    value: float
    column: str = "elbo"

    def reached(self, values: Sequence[float]) -> bool:
        """Whether the last evaluation is there."""
        return bool(values) and values[-1] >= self.value


class History:
    """Columns that grow by one evaluation at a time; columns may differ between evaluations."""

    def __init__(self) -> None:
        self._columns: dict[str, list[float]] = {"step": [], "seconds": []}

    def __getitem__(self, name: str) -> list[float]:
        return self._columns[name]

    def add(self, step: int, seconds: float, values: Mapping[str, float]) -> None:
        """Record `values` after `seconds` more of optimisation; a column left out holds NaN."""
        before = self._columns["seconds"]
        row = {**values, "step": step, "seconds": (before[-1] if before else 0.0) + seconds}
        length = len(before)
        for name in dict.fromkeys([*self._columns, *row]):
            column = self._columns.setdefault(name, [math.nan] * length)
            column.append(row.get(name, math.nan))

    def extend(self, seconds: float) -> None:
        """Put `seconds` more on the clock of the last evaluation, for work that has none of its own."""
        self._columns["seconds"][-1] += seconds

    def arrays(self) -> dict[str, np.ndarray]:
        """The columns as arrays."""
        return {name: np.asarray(column) for name, column in self._columns.items()}


class FitResult(eqx.Module):
    """A fitted family and how it came about.

    `elbo` is a fresh evaluation of `q` on the full data with standard error `elbo_error`; `history`
    has arrays `step`, `seconds` (of optimisation: no compilation, no evaluation), `elbo` and
    `elbo_error`, and what the monitor added.
    """

    q: AbstractFamily
    elbo: float
    elbo_error: float
    status: Status = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    history: dict[str, np.ndarray]
    compile_seconds: float
    target: Target
    estimator: AbstractEstimator
    estimator_state: PyTree
    decisions: tuple[Any, ...] = ()

    @property
    def seconds(self) -> float:
        """Seconds of optimisation."""
        return float(self.history["seconds"][-1])

    @property
    def hint(self) -> str:
        """What the status means and what to do about it."""
        return HINTS[self.status]

    def explain(self) -> str:
        """How the fit went, in words: auto's decisions, one a line, or what the status means."""
        story = "\n".join(map(str, self.decisions))
        return f"{story}\n{self}" if story else str(self)

    def sample(self, key: Key[Array, ""], draws: int = 1000) -> Any:
        """Draws from `q`, in the form of the target's points (vectors, or its pytree)."""
        return jax.vmap(self.target.point)(self.q.sample(key, draws))

    def __str__(self) -> str:
        return (
            f"{type(self.q).__name__} of dim {self.q.dim}: ELBO {self.elbo:.2f} ± {self.elbo_error:.2f} "
            f"after {self.steps:,} steps, {self.seconds:.2f} s (+ {self.compile_seconds:.1f} s to "
            f"compile); {self.status}: {self.hint}"
        )
