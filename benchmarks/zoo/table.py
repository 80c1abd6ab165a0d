"""The zoo's results in Markdown: right, wrong and says so, wrong and silent, for each tool."""

import statistics
from collections.abc import Iterable
from typing import Any

from .judging import CLASSES, classify, needless_warning, trust_is_wrong

TOOLS = {
    "mean-field": "quietgrad, mean-field",
    "low-rank": "quietgrad, low-rank",
    "full-rank": "quietgrad, full-rank",
    "auto": "quietgrad, family chosen",
    "bam": "batch and match, full-rank",
    "numpyro-svi": "NumPyro SVI, AutoNormal",
    "blackjax-pathfinder": "BlackJAX pathfinder, best of 4",
    "pymc-advi": "PyMC ADVI",
}


def _median(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1f}" if known else "–"


def summary(rows: list[dict[str, Any]], references: dict[str, Any]) -> list[str]:
    """One line for each tool, over all models and seeds."""
    head = (
        "tool", "fits", *CLASSES, "right of those with a right answer", "wrong among `trust`",
        "needless warnings", "seconds, first fit", "seconds, second",
    )  # fmt: skip
    lines = [_line(head), _line(["---"] * len(head))]
    for tool, words in TOOLS.items():
        own = [row for row in rows if row["tool"] == tool]
        if not own:
            continue
        classes = [classify(row, references[row["model"]]) for row in own]
        fair = [
            label
            for row, label in zip(own, classes, strict=True)
            if references[row["model"]]["must_warn"] is None
        ]
        trusting = [row for row in own if row["verdict"] == "trust"]
        wrong = sum(trust_is_wrong(row, references[row["model"]]) for row in trusting)
        needless = sum(needless_warning(row, references[row["model"]]) for row in own)
        cells = [words, len(own), *(classes.count(label) for label in CLASSES)]
        cells += [f"{fair.count('right')} of {len(fair)}", f"{wrong} of {len(trusting)}", needless]
        cells += [_median(row["seconds"] for row in own if row["cold"])]
        cells += [_median(row["seconds"] for row in own if not row["cold"])]
        lines.append(_line(cells))
    return lines


def by_model(rows: list[dict[str, Any]], references: dict[str, Any]) -> list[str]:
    """One line for each model: the largest error of a mean over seeds, and the class of the worst."""
    tools = [tool for tool in TOOLS if any(row["tool"] == tool for row in rows)]
    lines = [_line(["model", "dim", *tools]), _line(["---"] * (2 + len(tools)))]
    for name, reference in references.items():
        cells = [name, reference["dim"]]
        for tool in tools:
            own = [row for row in rows if (row["model"], row["tool"]) == (name, tool)]
            cells.append(_worst(own, reference) if own else "")
        if any(cells[2:]):
            lines.append(_line(cells))
    return lines


def _worst(rows: list[dict[str, Any]], reference: dict[str, Any]) -> str:
    row = max(rows, key=lambda row: CLASSES.index(classify(row, reference)))
    known = [row["mean_error"] for row in rows if row["mean_error"] is not None]
    off = f"{max(known):.2f}" if known and max(known) < 1e4 else "far" if known else "–"
    return f"{off} {classify(row, reference)}"


def _line(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
