"""`quietgrad report`: figures and a page from the records of a study."""

from pathlib import Path

from rich.console import Console


def make_report(
    directory: Path, *, out: Path | None, statistic: str, chapter: Path | None = None
) -> int:
    """Build the report and print where its page is."""
    from ...report import build

    page = build(directory, statistic=statistic, out=out, chapter=chapter)
    Console(soft_wrap=True).print(f"report: {page}", highlight=False)
    return 0
