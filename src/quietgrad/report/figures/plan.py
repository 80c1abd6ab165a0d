"""A figure that could be drawn: its name, what it shows, and how, or why not."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Plan:
    """A figure before it is drawn. `draw` is None where there are no rows, and `reason` says so.

    `statistic` is None for figures that show repetitions one by one.
    """

    name: str
    title: str
    caption: str
    statistic: str | None
    draw: Callable[[], Figure] | None
    reason: str = ""
