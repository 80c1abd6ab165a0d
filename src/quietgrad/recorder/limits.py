"""When a fit has to end before its method would end it: time, and Ctrl-C."""

import contextlib
import math
import signal
import threading
from collections.abc import Iterator
from typing import Any

from ..clock import OPTIMISE, Clock
from ..results import Status

INTERRUPTED = "stopped by the user; fit(target, result.q, ...) goes on from here"
OUT_OF_TIME = "the time limit was reached before the method was done; give more seconds"


class Ended(Exception):
    """Raised by the recorder where a fit has to end before its method would end it."""

    def __init__(self, status: Status, hint: str):
        super().__init__(hint)
        self.status, self.hint = status, hint


class Limits:
    """`seconds` limits the whole call, `optimise_seconds` only the optimisation."""

    def __init__(self, clock: Clock, seconds: float | None, optimise_seconds: float | None):
        self._clock = clock
        self._limits = {"total": seconds, OPTIMISE: optimise_seconds}
        self._interrupted, self.out_of_time = 0, False

    def interrupt(self) -> None:
        """Ask the fit to end where it next looks."""
        self._interrupted += 1

    def check(self, *, timed: bool = True) -> None:
        """Raise `Ended` if the user wants the fit to end, or a limit if it is `timed`."""
        if self._interrupted:
            raise Ended(Status.INTERRUPTED, INTERRUPTED)
        if timed and self.left() <= 0:
            self.out_of_time = True
            raise Ended(Status.BUDGET, OUT_OF_TIME)

    def left(self) -> float:
        """Seconds left until a limit; infinite without one."""
        spent = {"total": self._clock.total, OPTIMISE: self._clock.spent(OPTIMISE)}
        return min(
            (limit - spent[name] for name, limit in self._limits.items() if limit is not None),
            default=math.inf,
        )

    @contextlib.contextmanager
    def catching_interrupts(self) -> Iterator[None]:
        """Turn Ctrl-C into an ending with the best answer; a second one raises KeyboardInterrupt."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, frame: Any) -> None:
            self.interrupt()
            if self._interrupted > 1:
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
