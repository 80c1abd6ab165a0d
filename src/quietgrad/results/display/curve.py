"""The ELBO against the user's seconds: which part is worth seeing, and where programs were compiled."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

# The part of the curve, counted from its end, that sets the lower edge.
LATE = 0.5
# Room below it and above the best value, relative to the height in between, and the least height.
BELOW, ABOVE, LEAST = 0.5, 0.08, 1.0


class Curve(NamedTuple):
    """Evaluations in order, seconds since the call, and the spans of it in which programs were compiled.

    `bottom` and `top` are the edges of a picture that shows how the curve ends; it may begin far below.
    """

    seconds: Float[np.ndarray, " rows"]
    elbo: Float[np.ndarray, " rows"]
    error: Float[np.ndarray, " rows"]
    compiling: list[tuple[float, float]]
    total: float
    bottom: float
    top: float


def curve_of(history: Mapping[str, np.ndarray], clock: Mapping[str, float]) -> Curve | None:
    """The curve of a history; None if no evaluation was finite."""
    elbo = np.asarray(history.get("elbo", ()), float)
    finite = np.isfinite(elbo)
    if not finite.any():
        return None
    wall = np.asarray(history["wall"], float)
    shown = elbo[finite]
    late = shown[int(LATE * (len(shown) - 1)) :]
    height = max(LEAST, float(shown.max() - late.min()))
    bottom = max(float(shown.min()) - ABOVE * height, float(late.min()) - BELOW * height)
    return Curve(
        seconds=wall[finite],
        elbo=shown,
        error=np.nan_to_num(np.asarray(history["elbo_error"], float)[finite], posinf=0.0),
        compiling=_spans(wall, np.asarray(history["compile"], float)),
        total=max(float(clock["total"]), float(wall[-1])),
        bottom=bottom,
        top=float(shown.max()) + ABOVE * height,
    )


def _spans(
    wall: Float[np.ndarray, " rows"], compiled: Float[np.ndarray, " rows"]
) -> list[tuple[float, float]]:
    """Between two evaluations a program is compiled first and then run; spans that touch are one."""
    spans: list[tuple[float, float]] = []
    starts, before = np.concatenate([[0.0], wall[:-1]]), np.concatenate([[0.0], compiled[:-1]])
    for start, end, seconds in zip(starts, wall, compiled - before, strict=True):
        if seconds <= 0:
            continue
        stop = float(min(end, start + seconds))
        if spans and spans[-1][1] >= start:
            spans[-1] = spans[-1][0], stop
        else:
            spans.append((float(start), stop))
    return spans


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two values, about `count` of them."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** np.floor(np.log10(raw))
    step = power * next(m for m in (1, 2, 5, 10) if m * power >= raw)
    return [float(x) for x in step * np.arange(np.ceil(low / step), np.floor(high / step) + 1)]
