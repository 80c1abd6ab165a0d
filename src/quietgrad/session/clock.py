"""Where the time of a call goes: every second is in exactly one phase, compilation included.

Compilation happens wherever a program is first called. jax reports how long each trace, lowering and
compilation took (`jax.monitoring`); the clock takes these seconds out of the phase they fell into.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

COMPILE, OPTIMISE, EVALUATE, OTHER = "compile", "optimise", "evaluate", "other"
PHASES = (COMPILE, OPTIMISE, EVALUATE, OTHER)
# The events of jax that are part of compiling a program; the last one ends it.
EVENTS = "/jax/core/compile/"
PROGRAM = "/jax/core/compile/backend_compile_duration"

_RUNNING = threading.local()
_REGISTERING = threading.Lock()
_registered = False


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
