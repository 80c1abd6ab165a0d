"""What people read of a fit: rows of evaluations, decisions in words, and the line of progress.

Methods write it. Only `Plateau` and `Reached`, which end a run of plain steps, read one of its columns.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import numpy as np

from .._util.progress import Sight, time_left
from ..estimators import AbstractEstimator
from .clock import OPTIMISE, Clock
from .problem import Candidate

SENTENCES = {
    "search": "L-BFGS at fixed draws led to an ELBO of {elbo:.2f} on fresh draws{others}",
    "search stop": "at fresh draws a Newton step is expected to gain {left:.3f} ± {left_error:.3f} "
    "nats, which is not worth it; stop",
    "mode": "the mode with its curvature has an ELBO of {elbo:.2f}; Newton steps from there led to "
    "{later:.2f}",
    "embed": "the {simpler} solution, ELBO {elbo:.2f}, becomes the start of {family}",
    "enough": "{family} is about {gap:.2f} nats below the log evidence, so no richer family is worth it",
    "simpler": "{simpler} with the same means and conditional scales is {lost:.3f} nats below {family}, "
    "which is no clear loss, and takes its place",
    "trusted": "{family} would be trusted ({why}), so no program is compiled for a richer family",
    "evidence": "the verdict on {family} would be '{verdict}': {why}; look for a family that mends it",
    "up": "{richer} gained {gained:.2f} ± {error:.2f} nats over {family} and takes its place",
    "not up": "{richer} gained {gained:.2f} ± {error:.2f} nats over {family}, which is no clear gain",
    "mixture": "Newton steps of a mixture with {components} components led to an ELBO of {elbo:.2f}",
    "bend": "bending the Gaussian on the host led to an ELBO of {elbo:.2f}; the last round gained "
    "{gained:.3f} ± {error:.3f} nats",
    "newton": "Newton steps on the target's average gradient and curvature led to an ELBO of "
    "{elbo:.2f}; another one is expected to gain {left:.3f} ± {left_error:.3f} nats, so go on with "
    "stochastic steps",
    "newton stop": "Newton steps on the target's average gradient and curvature led to an ELBO of "
    "{elbo:.2f}; another one is expected to gain {left:.3f} ± {left_error:.3f} nats, which is not worth "
    "it; stop",
    "structure": "{sentence}",
    "no structure": "the target does not have the structure of q ({sentence}), so that stochastic steps "
    "take the place of block Newton steps",
    "globals": "with the locals given the {count} globals ({locals}), a Gaussian for these is about "
    "{gap:.3f} nats below their marginal density",
    "flow of globals": "a flow for the globals gained {gained:.3f} nats at its draws",
    "valley": "Newton steps that were stationary gained {gained:.2f} nats with more draws, so the "
    "target is far from quadratic; let another start compete",
    "choose": "noise dominates, so quiet gradients pay: {d.estimator} has the least variance × cost, "
    "{ratio:.2f} of the present one",
    "drift": "the gradient stands out from its noise ({signal:.2f} of its square), so the cheapest step "
    "is the right one",
    "stay": "noise dominates, and nothing has clearly less variance × cost than {d.estimator}",
    "round": "a round with a decaying rate gained {gain:+.2f} ± {error:.2f} nats; another one, twice as "
    "long, from a rate of {rate:.3g}",
    "take back": "a round with a decaying rate changed the ELBO by {gain:+.2f} ± {error:.2f} nats; take "
    "it back and halve the rate to {rate:.3g}",
    "stop": "the last round gained {gain:+.2f} ± {error:.2f} nats, which is not worth another; stop",
}


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

    @property
    def rows(self) -> list[dict[str, float | int]]:
        """The rows so far."""
        return list(self._rows)

    def column(self, name: str) -> list[float | int]:
        """One column; NaN where an evaluation did not have it."""
        return [row.get(name, math.nan) for row in self._rows]

    def arrays(self) -> dict[str, np.ndarray]:
        """The columns as arrays, in the order in which they first appeared."""
        names = dict.fromkeys(name for row in self._rows for name in row)
        return {name: np.asarray(self.column(name)) for name in names}


@dataclasses.dataclass(frozen=True)
class Decision:
    """One decision: its `kind` is a key of `SENTENCES`, `numbers` holds what it was based on."""

    step: int
    kind: str
    estimator: str
    numbers: dict[str, Any]

    def __str__(self) -> str:
        return f"step {self.step:,}: {SENTENCES[self.kind].format(d=self, **self.numbers)}"


def _unknown() -> None:
    """What is not known."""


class Progress:
    """The stage of a fit, the steps it plans, and the signal-to-noise ratio of its gradient.

    `signal` is asked only if somebody watches, and counts for the evaluation that comes next.
    """

    def __init__(self) -> None:
        self.stage = ""
        self.signal: Callable[[], float | None] = _unknown
        self._plan: tuple[int, int, float] | None = None

    def plan(self, first: int, last: int, clock: Clock) -> None:
        """Say that steps from `first` to `last` are coming, so that people learn how long they take."""
        self._plan = first, last, clock.spent(OPTIMISE)

    def sight(
        self,
        answer: Candidate,
        row: Mapping[str, float | int],
        estimator: AbstractEstimator | None,
        left: float,
    ) -> Sight:
        """What there is to tell of an answer, `left` seconds before a limit."""
        pace = planned = None
        if self._plan is not None:
            first, last, begun = self._plan
            planned = last - answer.step
            pace = (row["seconds"] - begun) / (answer.step - first) if answer.step > first else None
        signal, self.signal = self.signal(), _unknown
        return Sight(
            stage=self.stage,
            family=type(answer.q).__name__,
            step=answer.step,
            elbo=row["elbo"],
            error=row["elbo_error"],
            elapsed=row["wall"],
            estimator=None if estimator is None else estimator.title,
            signal=signal,
            left=time_left(left, pace, planned),
        )
