"""Tables in the documentation that scripts make: between two marks, put there by their `--write`."""

from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
BENCHMARKS, TRUST = DOCS / "benchmarks.md", DOCS / "trust.md"


def marks(name: str) -> tuple[str, str]:
    """The lines before and after a table."""
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def published(name: str, page: Path) -> list[str]:
    """The lines between the marks of a page."""
    begin, end = marks(name)
    before, _, rest = page.read_text().partition(f"{begin}\n")
    inside, mark, _ = rest.partition(f"{end}\n")
    if not (before and mark):
        raise ValueError(f"{page.name} needs the marks {begin!r} and {end!r}, each on a line of its own")
    return inside.strip("\n").split("\n")


def publish(name: str, lines: list[str], page: Path) -> None:
    """Put these lines between the marks."""
    published(name, page)
    begin, end = marks(name)
    before, rest = page.read_text().split(f"{begin}\n")
    after = rest.split(f"{end}\n")[1]
    page.write_text("\n".join([f"{before}{begin}", "", *lines, "", f"{end}\n{after}"]))
