"""Time of a fit: every second is in exactly one phase; limits, Ctrl-C and the share of evaluations.

Compilation happens wherever a program is first called. jax reports how long each trace, lowering and
compilation took (`jax.monitoring`); the clock takes these seconds out of the phase they fell into.
"""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

from ..evaluation.elbo_terms import ElboTerms
from ..status import Status

COMPILE, OPTIMISE, EVALUATE, OTHER = "compile", "optimise", "evaluate", "other"
PHASES = (COMPILE, OPTIMISE, EVALUATE, OTHER)
# The events of jax that are part of compiling a program; the last one ends it.
EVENTS = "/jax/core/compile/"
PROGRAM = "/jax/core/compile/backend_compile_duration"

_RUNNING = threading.local()
_REGISTERING = threading.Lock()
_registered = False
INTERRUPTED = "stopped by the user; fit(target, result.q, ...) goes on from here"
OUT_OF_TIME = "the time limit was reached before the method was done; give more seconds"
# Evaluation that nobody notices: below this many seconds its share does not matter.
FREE_SECONDS = 0.5


class Clock:
    """Seconds by phase. `now` is the time in seconds; tests hand in their own.

    `programs` counts what was compiled, or found in the compilation cache, while the clock was running.
    """

    def __init__(self, now: Callable[[], float] = time.perf_counter):
        self._now = now
        self._begun = self._mark = now()
        self._spent: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self._phase = OTHER
        self.programs = 0

    def go_on(self, spent: Mapping[str, float], programs: int) -> None:
        """Count what an earlier process spent on the same fit too."""
        for phase in PHASES:
            self._spent[phase] += spent[phase]
        self._begun -= sum(spent[phase] for phase in PHASES)
        self.programs += programs

    @contextlib.contextmanager
    def running(self) -> Iterator["Clock"]:
        """Hear of compilations in this thread; the innermost running clock gets them."""
        _listen()
        stack: list[Clock] = _RUNNING.__dict__.setdefault("clocks", [])
        stack.append(self)
        try:
            yield self
        finally:
            stack.remove(self)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge what happens inside to this phase; afterwards the phase around it goes on."""
        self._charge(self._phase)
        before, self._phase = self._phase, name
        try:
            yield
        finally:
            self._charge(self._phase)
            self._phase = before

    def spent(self, phase: str) -> float:
        """Seconds in a phase so far."""
        self._charge(self._phase)
        return self._spent[phase]

    @property
    def total(self) -> float:
        """Seconds since the clock was made, and what was spent before it went on."""
        return self._now() - self._begun

    def read(self) -> dict[str, float]:
        """Seconds by phase, and their total."""
        self._charge(self._phase)
        return {**self._spent, "total": sum(self._spent.values())}

    def compiled(self, seconds: float, *, program: bool) -> None:
        """Compiling took the last `seconds`; what of them is charged already is not charged again."""
        now = self._now()
        begun = min(now, max(self._mark, now - seconds))
        self._spent[self._phase] += begun - self._mark
        self._spent[COMPILE] += now - begun
        self._mark = now
        self.programs += program

    def _charge(self, phase: str) -> None:
        now = self._now()
        self._spent[phase] += now - self._mark
        self._mark = now


def _listen() -> None:
    global _registered
    with _REGISTERING:
        if not _registered:
            jax.monitoring.register_event_duration_secs_listener(_heard)
            _registered = True


def _heard(event: str, duration_secs: float, **_: Any) -> None:
    stack = getattr(_RUNNING, "clocks", None)
    if stack and event.startswith(EVENTS):
        stack[-1].compiled(duration_secs, program=event == PROGRAM)


class Ended(Exception):
    """Raised by the recorder where a fit has to end before its method would end it."""

    def __init__(self, status: Status, hint: str):
        super().__init__(hint)
        self.status, self.hint = status, hint


class Interrupts:
    """Ctrl-C as a request that a fit checks for, from the beginning of the call and in all its parts."""

    def __init__(self) -> None:
        self.count, self._catching = 0, False

    def ask(self) -> None:
        """Ask the fit to end at its next check."""
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
