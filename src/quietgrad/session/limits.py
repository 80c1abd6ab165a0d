"""Limits of a fit: time, Ctrl-C, and the share of its time that evaluations may take."""

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..evaluation.elbo_terms import ElboTerms
from ..status import Status
from .clock import EVALUATE, OPTIMISE, Clock

INTERRUPTED = "stopped by the user; fit(target, result.q, ...) goes on from here"
OUT_OF_TIME = "the time limit was reached before the method was done; give more seconds"

# Evaluation that nobody notices: below this many seconds its share does not matter.
FREE_SECONDS = 0.5


class Ended(Exception):
    """Raised by the recorder where a fit has to end before its method would end it."""

    def __init__(self, status: Status, hint: str):
        super().__init__(hint)
        self.status, self.hint = status, hint


class Interrupts:
    """Ctrl-C as a wish that a fit looks for: from the beginning of the call, shared by all its parts."""

    def __init__(self) -> None:
        self.count, self._catching = 0, False

    def ask(self) -> None:
        """Ask the fit to end where it next looks."""
        self.count += 1

    @contextlib.contextmanager
    def catching(self) -> Iterator[None]:
        """Turn Ctrl-C into an ending with the best answer; a second one raises KeyboardInterrupt."""
        if self._catching or threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, frame: Any) -> None:
            self.ask()
            if self.count > 1:
                raise KeyboardInterrupt

        before = signal.signal(signal.SIGINT, handle)
        self._catching = True
        try:
            yield
        finally:
            self._catching = False
            signal.signal(signal.SIGINT, before)


class Limits:
    """`seconds` limits the whole call, `optimise_seconds` only the optimisation."""

    def __init__(
        self,
        clock: Clock,
        seconds: float | None,
        optimise_seconds: float | None,
        interrupts: Interrupts,
    ):
        self._clock, self.interrupts = clock, interrupts
        self._limits = {"total": seconds, OPTIMISE: optimise_seconds}
        self.out_of_time = False

    def check(self, *, timed: bool = True) -> None:
        """Raise `Ended` if the user wants the fit to end, or a limit if it is `timed`."""
        if self.interrupts.count:
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


class Pace:
    """How many evaluations there were, and the seconds of the last."""

    def __init__(self, count: int = 0, last: float = 0.0):
        self.count, self.last = count, last

    def affordable(self, clock: Clock, share: float | None) -> bool:
        """Whether one more like the last keeps evaluations within their share of the optimisation."""
        if share is None or self.count == 0:
            return True
        after = clock.spent(EVALUATE) + self.last
        return after <= max(FREE_SECONDS, share * clock.spent(OPTIMISE))

    def timed(self, clock: Clock, evaluate: Callable[[], ElboTerms]) -> ElboTerms:
        """What `evaluate` returns; its seconds are remembered."""
        began = clock.spent(EVALUATE)
        terms = evaluate()
        self.last, self.count = clock.spent(EVALUATE) - began, self.count + 1
        return terms
