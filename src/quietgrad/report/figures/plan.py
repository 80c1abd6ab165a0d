"""A figure that could be drawn: its name, what it shows, and how, or why not."""

import re
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

    @property
    def file(self) -> str:
        """The name of its files, without what a user's own names may bring into a path."""
        return re.sub(r"[^A-Za-z0-9]+", "-", self.name).strip("-")
