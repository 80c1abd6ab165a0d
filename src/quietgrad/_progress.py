"""A line of progress on a terminal, and silence elsewhere."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

Show = Callable[[str, Mapping[str, float | int]], None]


@contextmanager
def progress_line(*, show: bool | None) -> Iterator[Show]:
    """Yield `show(stage, row)`; `show=None` shows the line when standard error is a terminal."""
    if not (sys.stderr.isatty() if show is None else show):
        yield lambda stage, row: None
        return
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda stage, row: console.print(_words(stage, row), highlight=False, soft_wrap=True)
        return
    with Status("compiling", console=console) as line:
        yield lambda stage, row: line.update(_words(stage, row))


def _words(stage: str, row: Mapping[str, float | int]) -> str:
    words = f"{stage}: " if stage else ""
    return (
        f"{words}step {row['step']:,.0f}, ELBO {row['elbo']:,.2f} ± {row['elbo_error']:.2f}, "
        f"{row['wall']:.1f} s"
    )
