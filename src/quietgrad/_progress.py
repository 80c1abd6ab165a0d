"""A progress bar on a terminal, and silence elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(total: int, *, show: bool | None) -> Iterator[Callable[[int, float], None]]:
    """Yield `update(step, elbo)`; `show=None` shows the bar when standard error is a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda step, elbo: None
        return
    columns = (
        BarColumn(),
        TextColumn("step {task.completed:,.0f}/{task.total:,.0f}"),
        TextColumn("ELBO {task.fields[elbo]:,.2f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("fit", total=total, elbo=float("nan"))
        yield lambda step, elbo: bar.update(task, completed=step, elbo=elbo)
