"""How far a fit is: a live line on a terminal, a few plain lines where asked for, else silence."""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from rich.spinner import Spinner

# Plain lines come at most this often, in seconds, and at first after half of the time so far.
MOST_OFTEN, AT_LEAST_EVERY = 1.0, 60.0


class Sight(NamedTuple):
    """What there is to tell at an evaluation; None is what is not known.

    `signal` is the signal-to-noise ratio of the gradient, `left` the seconds to a limit.
    """

    stage: str
    family: str
    step: int
    elbo: float
    error: float
    elapsed: float
    estimator: str | None = None
    signal: float | None = None
    left: float | None = None

    def words(self, since: float = 0.0) -> str:
        """One line, `since` seconds after the evaluation."""
        parts = [
            f"{self.stage or 'start'} ({self.family})",
            f"step {self.step:,}",
            f"ELBO {self.elbo:,.2f} ± {self.error:.2f}",
        ]
        if self.signal is not None:
            parts.append(f"gradient signal/noise {self.signal:.2g}")
        if self.estimator is not None:
            parts.append(self.estimator)
        parts.append(f"{self.elapsed + since:.1f} s")
        if self.left is not None:
            parts.append(f"{duration(max(0.0, self.left - since))} left")
        return " · ".join(parts)


class Tells(Protocol):
    """What the line needs to know: the stage of the work, seconds so far, and words for both."""

    @property
    def stage(self) -> str: ...  # noqa: D102
    @property
    def elapsed(self) -> float: ...  # noqa: D102
    def words(self, since: float = 0.0) -> str: ...  # noqa: D102


# A fit that nobody watches does not work out what there is to tell.
Show = Callable[[Callable[[], Tells]], None]


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, to two digits or so."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:.1f} h"


def time_left(limit: float, pace: float | None, steps: int | None) -> float | None:
    """Seconds until a limit or the last step, whichever comes first; None without either."""
    by_steps = math.inf if not pace or steps is None else pace * max(0, steps)
    soonest = min(limit, by_steps)
    return soonest if math.isfinite(soonest) else None


@contextmanager
def progress_line(*, show: bool | None) -> Iterator[Show]:
    """Yield `show(sight)`; `show=None` shows the line when standard error is a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda sight: None
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    if console.is_terminal:
        line = LiveLine()
        with Live(get_renderable=line.renderable, console=console, transient=True, refresh_per_second=8):
            yield line.show
        return
    lines = PlainLines(lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True))
    try:
        yield lines.show
    finally:
        lines.close()


class LiveLine:
    """The last evaluation, with a clock that goes on in between."""

    def __init__(self, now: Callable[[], float] = time.monotonic):
        from rich.spinner import Spinner

        self._now, self._shown, self._sight = now, now(), None
        self._spinner = Spinner("dots")

    def show(self, sight: Callable[[], Tells]) -> None:
        """Show an evaluation."""
        self._sight, self._shown = sight(), self._now()

    def text(self) -> str:
        """What the line says now."""
        since = self._now() - self._shown
        return f"compiling · {since:.1f} s" if self._sight is None else self._sight.words(since)

    def renderable(self) -> "Spinner":
        """The line for rich, which asks for it several times a second."""
        # A plain string would be read as markup: a family or estimator may have brackets in its name.
        self._spinner.text = self.text().replace("[", r"\[")
        return self._spinner


class PlainLines:
    """Lines for a log: at each new stage, then ever more rarely, and the last one at the end."""

    def __init__(self, write: Callable[[str], None]):
        self._write, self._last, self._due, self._stage = write, None, 0.0, None

    def show(self, sight: Callable[[], Tells]) -> None:
        """Write a line if one is due."""
        self._last = now = sight()
        if now.stage == self._stage and now.elapsed < self._due:
            return
        self._last, self._stage = None, now.stage
        pause = min(AT_LEAST_EVERY, max(MOST_OFTEN, 0.5 * now.elapsed))
        self._due = now.elapsed + pause
        self._write(now.words())

    def close(self) -> None:
        """Write the last evaluation, if it was not written."""
        if self._last is not None:
            self._write(self._last.words())
