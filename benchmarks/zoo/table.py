"""The zoo's results in Markdown: right, wrong and says so, wrong and silent, for each tool."""

import statistics
from collections.abc import Iterable
from typing import Any

from . import HELD_BACK
from .judging import CLASSES, classify, fine, needless_warning, trust_is_wrong
from .store import Row, Store

TOOLS = {
    "auto": "quietgrad, family chosen",
    "full-rank": "quietgrad, full-rank",
    "mean-field": "quietgrad, mean-field",
    "low-rank": "quietgrad, low-rank",
    "bam": "batch and match, full-rank",
    "numpyro-svi": "NumPyro SVI, AutoNormal",
    "blackjax-pathfinder": "BlackJAX pathfinder, best of 4",
    "pymc-advi": "PyMC ADVI",
}
HEAD = (
    "tool", "models", "fits", *CLASSES, "right of those with moments", "scales right too",
    "wrong among `trust`", "warned of needlessly",
)  # fmt: skip


def page(fits: Store, cold: Store, names: list[str], references: dict[str, Any]) -> list[str]:
    """All tables: models that shaped the verdict, models held back, seconds, each model by itself."""
    rows = [row for tool in TOOLS for row in fits.rows(tool) if row["model"] in names]
    seen = [row for row in rows if row["model"] not in HELD_BACK]
    held = [row for row in rows if row["model"] in HELD_BACK]
    timed = [row for tool in TOOLS for row in cold.rows(tool) if row["model"] in names]
    return [
        "What was run:", "", *coverage(fits, names, references), "",
        "All models:", "", *summary(rows, references), "",
        "Models on which the verdict was shaped:", "", *summary(seen, references), "",
        "Models held back:", "", *summary(held, references), "",
        *(["Seconds, median over models:", "", *seconds(timed), ""] if timed else []),
        "The largest error of a mean over seeds, in posterior sds, and the class of the worst fit:", "",
        *by_model(rows, references), "",
        "Where the rows are from:", "", *where(fits), *where(cold),
    ]  # fmt: skip


def coverage(fits: Store, names: list[str], references: dict[str, Any], seeds: int = 3) -> list[str]:
    """What was run and what was not, one line for each tool."""
    ready = [name for name in names if references.get(name, {}).get("good")]
    lines = []
    for tool, words in TOOLS.items():
        rows = [row for row in fits.rows(tool) if row["model"] in names]
        if not rows:
            lines.append(f"- {words}: not run.")
            continue
        missing = [name for name in ready if name not in {row["model"] for row in rows}]
        complete = _with_seeds(rows, seeds)
        left = f"; no fit of {', '.join(missing)}" if missing else ""
        lines.append(
            f"- {words}: {len(rows)} fits of {len(ready) - len(missing)} of {len(ready)} models, "
            f"{complete} of them with {seeds} seeds{left}."
        )
    without = [name for name in names if name not in ready]
    return lines + [f"- No reference yet: {', '.join(without)}."] * bool(without)


def _with_seeds(rows: list[Row], seeds: int) -> int:
    names = [row["model"] for row in rows]
    return sum(names.count(name) >= seeds for name in set(names))


def summary(rows: list[Row], references: dict[str, Any]) -> list[str]:
    """One line for each tool, over models and seeds."""
    lines = [line(HEAD), line(["---"] * len(HEAD))]
    for tool, words in TOOLS.items():
        own = [(row, references[row["model"]]) for row in rows if row["tool"] == tool]
        if not own:
            continue
        classes = [classify(*pair) for pair in own]
        known = [label for label, (_, truth) in zip(classes, own, strict=True) if "mean" in truth]
        trusting = [row for row, _ in own if row["verdict"] == "trust"]
        good = [row for row, _ in own if fine(row)]
        models = len({row["model"] for row, _ in own})
        cells = [words, models, len(own), *(classes.count(label) for label in CLASSES)]
        cells += [f"{known.count('right')} of {len(known)} ({_percent(known)})", len(good)]
        cells += [f"{sum(map(trust_is_wrong, trusting))} of {len(trusting)}"]
        cells += [f"{sum(map(needless_warning, good))} of {len(good)}"]
        lines.append(line(cells))
    return lines


def seconds(rows: list[Row]) -> list[str]:
    """First and second fits in a fresh process, and their verdicts."""
    head = ("tool", "models", "first fit", "second fit", "verdict after the second")
    lines = [line(head), line(["---"] * len(head))]
    for tool, words in TOOLS.items():
        own = [row for row in rows if row["tool"] == tool]
        if not own:
            continue
        first, second = ([row for row in own if row["cold"] is cold] for cold in (True, False))
        cells = [words, len(first), median(first, "seconds"), median(second, "seconds")]
        lines.append(line([*cells, median(second, "verdict_seconds")]))
    return lines


def by_model(rows: list[Row], references: dict[str, Any]) -> list[str]:
    """One line for each model: the largest error of a mean over seeds, and the class of the worst."""
    tools = [tool for tool in TOOLS if any(row["tool"] == tool for row in rows)]
    lines = [line(["model", "dim", *tools]), line(["---"] * (2 + len(tools)))]
    for name, reference in references.items():
        cells = [f"{name} (held back)" if name in HELD_BACK else name, reference["dim"]]
        for tool in tools:
            own = [row for row in rows if (row["model"], row["tool"]) == (name, tool)]
            cells.append(_worst(own, reference) if own else "")
        if any(cells[2:]):
            lines.append(line(cells))
    return lines


def where(store: Store, known: Iterable[str] = tuple(TOOLS)) -> list[str]:
    """Dates, code and machine of the rows, one line for each environment and the tools it served."""
    tools: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    for tool in known:
        for name, place in store.environments(tool).items():
            rows = [row for row in store.rows(tool) if row["environment"] == name]
            dates = sorted({row["date"] for row in rows})
            tools.setdefault(name, []).append(f"{tool} ({len(rows)})")
            places[name] = (
                f"{dates[0]} to {dates[-1]}, commit {str(place['commit'])[:7]}"
                f"{' with changes' if place['dirty'] else ''}, {place['cpu']}, {place['cores']} cores, "
                f"Python {place['python']}, jax {place['jax']}, {place['precision']}"
            )
    return [f"- {', '.join(tools[name])}: {places[name]}" for name in places]


def _worst(rows: list[Row], reference: dict[str, Any]) -> str:
    row = max(rows, key=lambda row: CLASSES.index(classify(row, reference)))
    known = [row["mean_error"] for row in rows if row["mean_error"] is not None]
    off = f"{max(known):.2f}" if known and max(known) < 1e4 else "far" if known else "–"
    return f"{off} {classify(row, reference)}"


def median(rows: list[Row], name: str) -> str:
    """Of the rows that have this number."""
    known = [row[name] for row in rows if row.get(name) is not None]
    return f"{statistics.median(known):.1f}" if known else "–"


def _percent(labels: list[str]) -> str:
    return f"{100 * labels.count('right') / len(labels):.0f} %" if labels else "–"


def line(cells: Iterable[Any]) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"
