"""The README's table: models as people bring them, beside NUTS and other tools, from stored rows.

    python benchmarks/readme.py            print it
    python benchmarks/readme.py --write    put it between the marks of README.md

Rows come from `python benchmarks/models.py run`; nothing is measured here.
"""

import argparse
from pathlib import Path

import brought
from brought.judged import judge
from brought.reference import STORE
from brought.table import HEAD, summary
from brought.tools import TOOLS
from models import PRECISIONS, store
from pages import publish
from zoo.reference import read
from zoo.table import line

README = Path(__file__).parents[1] / "README.md"
# Columns of the whole table that a newcomer asks for.
SHOWN = (
    *("tool", "precision", "models", "right", "right and believed", "silent"),
    *("processor s, median", "of NUTS's, median"),
)
LEGEND = (
    "*Right*: every mean within 0.25 posterior sds of long NUTS chains. *Believed*: its own verdict "
    "does not warn. *Silent*: wrong, and does not say so. NUTS is NumPyro's, one chain of 500 draws "
    "after 500 of warm-up. Seconds are processor seconds of the whole call, compilation included."
)


def table() -> list[str]:
    """Some columns of `brought.table.summary`, and what they mean."""
    references = read(STORE)
    rows = [
        judge(row, references.get(row["model"])) | {"label": precision}
        for precision in PRECISIONS
        for tool in TOOLS
        for row in store(precision).rows(tool)
    ]
    places = [HEAD.index(name) for name in SHOWN]
    lines = [[cell.strip() for cell in one.strip("| ").split("|")] for one in summary(rows)]
    known, seeds = len({row["model"] for row in rows}), len({row["seed"] for row in rows})
    count = f"{known} of {len(brought.REGISTRY)} models, {seeds} seed{'s' if seeds > 1 else ''}."
    return [
        *(line([cells[place] for place in places]) for cells in lines),
        "",
        f"{count} {LEGEND}",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    found = table()
    print("\n".join(found))
    if parser.parse_args().write:
        publish("brought", found, README)
