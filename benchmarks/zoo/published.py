"""The zoo's tables in docs/trust.md: between two marks, put there by `accuracy.py table --write`."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs" / "trust.md"
BEGIN, END = "<!-- zoo: begin, by benchmarks/accuracy.py table --write -->", "<!-- zoo: end -->"


def published(text: str) -> list[str]:
    """The lines between the marks of a page."""
    before, _, rest = text.partition(f"{BEGIN}\n")
    inside, mark, _ = rest.partition(f"{END}\n")
    if not (before and mark):
        raise ValueError(f"the page needs the marks {BEGIN!r} and {END!r}, each on a line of its own")
    return inside.strip("\n").split("\n")


def publish(lines: list[str], path: Path = DOCS) -> None:
    """Put these lines between the marks."""
    text = path.read_text()
    published(text)
    before, rest = text.split(f"{BEGIN}\n")
    after = rest.split(f"{END}\n")[1]
    path.write_text("\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}\n{after}"]))
