"""Write the tables of docs/reproduction.md and the README's numbers from the stored cells.

Run from the repository: python reproduction/tables.py [--check]
Each table stands between two comments that name it; what is between them is replaced. `--check` writes
nothing, and exits with 1 if something would change.
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import blocks
import further_blocks
import remember
import statements
from results import Results, read

HERE = Path(__file__).parent
PAGES = (HERE.parent / "docs" / "reproduction.md", HERE.parent / "README.md")
TABLES = {**blocks.TABLES, **further_blocks.TABLES, **statements.BLOCKS, "numbers": remember.numbers}
MARK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def renewed(text: str, results: Results) -> str:
    """The text of a page with every marked table written anew; an unknown name is an error."""
    return MARK.sub(lambda found: f"{found[1]}{TABLES[found[2]](results)}\n{found[3]}", text)


def stale(text: str, results: Results) -> list[str]:
    """The marked tables of a page that are not what the cells give."""
    return [found[2] for found in MARK.finditer(text) if renewed(found[0], results) != found[0]]


def main(
    arguments: Sequence[str] | None = None, *, pages: Sequence[Path] = PAGES, here: Path = HERE
) -> int:
    """Rewrite the pages, or say which are out of date, by the cells that are stored `here`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    results, changed = read(here), []
    for page in pages:
        before = page.read_text(encoding="utf-8")
        after = renewed(before, results)
        if before == after:
            continue
        changed.append(page.name)
        if not check:
            page.write_text(after, encoding="utf-8")
    done = "out of date" if check else "written"
    print(f"{done}: {', '.join(changed)}" if changed else "every table is up to date")
    return int(bool(changed) and check)


if __name__ == "__main__":
    sys.exit(main())
