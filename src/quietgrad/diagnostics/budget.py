"""The time of a verdict: what is left of it, what a part would take, and what it had to leave out."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .._util.progress import Show


class Stage(NamedTuple):
    """What a verdict, or another `work`, is at, for the line of progress."""

    stage: str
    elapsed: float
    limit: float
    work: str = "verdict"

    def words(self, since: float = 0.0) -> str:
        """One line, `since` seconds later."""
        limit = f" of at most {self.limit:.0f} s" if math.isfinite(self.limit) else " s"
        return f"{self.work}: {self.stage} · {self.elapsed + since:.1f}{limit}"


class Budget:
    """Seconds and gradients that a verdict may take.

    `reserve` is the share of the seconds that no part is planned into. `pace` is in seconds a gradient,
    as the last part took it. `unseen` lists what there was no time to
    look at, `further` what more time would be spent on. `now` is the time in seconds; tests hand in
    their own.
    """

    def __init__(
        self,
        seconds: float | int = math.inf,
        gradients: float | int = math.inf,
        *,
        reserve: float = 0.0,
        show: Show = lambda sight: None,
        now: Callable[[], float] = time.perf_counter,
    ):
        self.seconds, self.gradients, self.reserve = seconds, gradients, reserve
        self._show, self._now, self._begun = show, now, now()
        self.pace = 0.0
        self.unseen: list[str] = []
        self.further: list[str] = []

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return self._now() - self._begun

    @property
    def left(self) -> float:
        """Seconds that are left to plan with."""
        return max(0.0, (1 - self.reserve) * self.seconds - self.spent)

    def stage(self, name: str) -> None:
        """Say what comes next."""
        self._show(lambda: Stage(name, self.spent, self.seconds))

    @contextlib.contextmanager
    def paced(self, gradients: int) -> Iterator[None]:
        """Measure the pace of what takes this many gradients."""
        begun = self._now()
        yield
        self.pace = (self._now() - begun) / max(1, gradients)

    def share(self, gradients: float | int, *, of: float = 1.0) -> float:
        """The share of so many gradients for which this part of the time left is enough; at most one."""
        needed = gradients * self.pace
        return 1.0 if needed <= 0 else min(1.0, of * self.left / needed)

    def affords(self, gradients: float | int) -> bool:
        """Whether there is time for so many."""
        return self.share(gradients) >= 1.0
