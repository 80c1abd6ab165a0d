"""When a run arrives at a mark: the first time that is held, not the first noisy crossing.

Evaluations of an ELBO are noisy, so a run that is still below the mark now and then shows a value above
it. Such a crossing counts only if the evaluations that follow it bear it out. Race, study and benchmarks
share this rule. NumPy only: reports use it without jax.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Real

HOLD = 5

Column = Sequence[float | int] | Real[np.ndarray, " evaluations"]


def arrival(clock: Column, elbo: Column, mark: float, hold: int = HOLD) -> float | None:
    """The clock at the first evaluation that is at the mark and held there; None if there is none.

    Evaluation i is held if elbo[i] >= mark and so is the median of elbo[i], ..., elbo[i + hold - 1].
    `clock` is anything that grows along the run: seconds or steps.
    """
    place = arrival_index(elbo, mark, hold)
    return None if place is None else float(clock[place])


def arrival_index(elbo: Column, mark: float, hold: int = HOLD) -> int | None:
    """The number of the evaluation at which a run arrives; None if it never does.

    NaN counts as minus infinity. Near the end the window is cut short: the lower median of what is left
    must be at the mark, and one evaluation alone is not enough. So a value at the very end counts only
    if another one follows it; callers append the evaluation of the final answer.
    """
    if hold < 1:
        raise ValueError(f"hold must be at least 1 evaluation; got {hold}")
    values = np.asarray(elbo, float)
    values = np.where(np.isnan(values), -np.inf, values)
    least = min(hold, 2)
    for place in np.flatnonzero(values >= mark):
        window = np.sort(values[place : place + hold])
        if len(window) >= least and window[(len(window) - 1) // 2] >= mark:
            return int(place)
    return None


def held_index(elbo: Column, mark: float, hold: int = HOLD) -> int | None:
    """As `arrival_index`, and the run stays at the mark to its end; None if it does not.

    It stays if every later window of `hold` evaluations has a median at the mark, the last ones too.
    """
    values = np.asarray(elbo, float)
    values = np.where(np.isnan(values), -np.inf, values)
    size = max(1, min(hold, len(values)))
    windows = np.lib.stride_tricks.sliding_window_view(values, size) if len(values) else np.empty((0, 1))
    medians = np.sort(windows, axis=1)[:, (size - 1) // 2]
    below = np.flatnonzero(medians < mark)
    # The window that begins behind the last one below the mark is the first of those that stay.
    start = int(below[-1]) + 1 if len(below) else 0
    if start >= len(medians):
        return None
    place = arrival_index(values[start:], mark, hold)
    return None if place is None else start + place
