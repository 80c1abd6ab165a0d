"""How much of a machine other processes take while this one measures something."""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path

STAT = Path("/proc/stat")
# Columns of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
COLUMNS, IDLE = 8, (3, 4)


def _own_ticks() -> float:
    return time.process_time() * os.sysconf("SC_CLK_TCK")


class OtherWork:
    """Begins to watch when it is made.

    A load average would not do: it remembers the minute before. `stat` has the system's count, and
    `own_ticks` counts those of this process.
    """

    def __init__(self, stat: Path = STAT, own_ticks: Callable[[], float] = _own_ticks):
        self._stat, self._own_ticks = stat, own_ticks
        self._began = self._ticks()

    def share(self) -> float:
        """The share of all processors that others took since; NaN where the system does not tell."""
        busy, every, own = (now - then for now, then in zip(self._ticks(), self._began, strict=True))
        return max(0.0, busy - own) / every if every > 0 else math.nan

    def _ticks(self) -> tuple[float, float, float]:
        """Busy ticks of all processors, all ticks, and those of this process; NaN without a count."""
        try:
            first = self._stat.read_text().splitlines()[0].split()
            ticks = [float(word) for word in first[1 : COLUMNS + 1]]
        except (OSError, IndexError, ValueError):
            return math.nan, math.nan, math.nan
        busy = sum(value for place, value in enumerate(ticks) if place not in IDLE)
        return busy, sum(ticks), self._own_ticks()
