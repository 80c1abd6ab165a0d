"""How far a study is: a bar on a terminal, a line now and then elsewhere."""

import threading
from collections import Counter
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .jobs import CellJob

LINES = 10


class StudyProgress:
    """The listener of an engine, on standard error; also counts what came of the cells."""

    def __init__(self, total: int, console: Console):
        self.counts: Counter[str] = Counter()
        self._total, self._console, self._lock = total, console, threading.Lock()
        self._bar: Progress | None = None
        if console.is_terminal:
            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[troubles]}{task.description}"),
                TimeRemainingColumn(),
            )
            bar = Progress(*columns, console=console, transient=True)
            self._task = bar.add_task("", total=total, troubles="")
            self._bar = bar

    def __enter__(self) -> "StudyProgress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def started(self, job: CellJob) -> None:
        """Show which cell is running."""
        if self._bar is not None:
            self._bar.update(self._task, description=escape(job.cell.name))

    def finished(self, job: CellJob, status: str) -> None:
        """Count a cell; off a terminal, say so after each tenth of them."""
        with self._lock:
            self.counts[status] += 1
            done = sum(self.counts.values())
        if self._bar is not None:
            bad = self.counts["failed"] + self.counts["timeout"]
            troubles = f"[red]{bad} failed[/red] " if bad else ""
            self._bar.update(self._task, advance=1, troubles=troubles)
        elif done == self._total or done % -(-self._total // LINES) == 0:
            self.note(f"{done} of {self._total} cells, last {job.cell.name}: {status}")

    def note(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
