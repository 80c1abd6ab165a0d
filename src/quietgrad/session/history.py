"""Rows of evaluations on the way to an answer, and when they say that a run has arrived."""

import math
from collections.abc import Mapping, Sequence

import equinox as eqx
import numpy as np


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
