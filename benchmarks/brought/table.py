"""What came out on brought models, in Markdown: right and believed, silent, seconds beside NUTS."""

import statistics
from typing import Any

from zoo.judging import DO_NOT_TRUST, classify, needless_warning, trust_is_wrong
from zoo.store import Row, Store
from zoo.table import line, where

from . import load
from .judged import judge, right
from .tools import TOOLS

WORDS = {
    "auto": "quietgrad, family chosen",
    "refined": "quietgrad, family chosen, `refine=True`",
    "nuts": "NUTS, 500 + 500, one chain",
    "svi-normal": "NumPyro SVI, AutoNormal",
    "svi-multivariate": "NumPyro SVI, AutoMultivariateNormal",
    "pathfinder": "BlackJAX pathfinder",
    "advi": "PyMC ADVI",
    "fullrank-advi": "PyMC full-rank ADVI",
}
# Endings that no proper model should have.
FALSE_ENDINGS = ("unbounded", "collapsed", "non-finite", "fault")
HEAD = (
    "tool", "precision", "models", "fits", "right", "right and believed", "says so", "silent",
    "wrong among `trust`", "warned of needlessly", "false endings", "processor s, median",
    "to the first answer", "of NUTS's, median", "at most NUTS's",
)  # fmt: skip
TRUTH: Row = {"must_warn": None}
References = dict[str, Any]


def page(stores: dict[str, Store], names: list[str], references: References) -> list[str]:
    """All tables: each tool, each model, what has no reference, where the rows are from."""
    rows = [
        judge(row, references.get(row["model"])) | {"label": precision}
        for precision, store in stores.items()
        for tool in TOOLS
        for row in store.rows(tool)
        if row["model"] in names
    ]
    return [
        *summary(rows), "",
        "One line a model: the worst fit of `auto` over seeds and precisions (the largest error of a "
        "mean, in posterior sds, and where), and processor seconds of `auto` and NUTS, medians.", "",
        *by_model(rows, names, references), "",
        *without(names, references), "",
        "Where the rows are from:", "",
        *(part for store in stores.values() for part in where(store, TOOLS)),
    ]  # fmt: skip


def summary(rows: list[Row]) -> list[str]:
    """One line for each tool and precision, over models and seeds."""
    lines = [line(HEAD), line(["---"] * len(HEAD))]
    nuts = _nuts_seconds(rows)
    for tool, words in WORDS.items():
        for label in dict.fromkeys(row["label"] for row in rows):
            own = [row for row in rows if (row["tool"], row["label"]) == (tool, label)]
            if own:
                lines.append(line([words, label, *_counts(own, nuts)]))
    return lines


def _counts(own: list[Row], nuts: dict[tuple[str, str], float]) -> list[Any]:
    known = [row for row in own if row["mean_error"] is not None]
    classes = [classify(row, TRUTH) for row in known]
    believed = [
        row for row, label in zip(known, classes, strict=True)
        if label == "right" and row["verdict"] != DO_NOT_TRUST
    ]  # fmt: skip
    trusting = [row for row in known if row["verdict"] == "trust"]
    good = [row for row in known if right(row)]
    seconds = [row["processor_seconds"] for row in own if "processor_seconds" in row]
    first = [row["first_answer"] for row in own if row.get("first_answer") is not None]
    ratios = [
        row["processor_seconds"] / nuts[row["model"], row["label"]]
        for row in own
        if "processor_seconds" in row and (row["model"], row["label"]) in nuts
    ]
    verdicts = {row["verdict"] for row in own} != {"none"}
    return [
        len({row["model"] for row in own}),
        len(own),
        f"{classes.count('right')} of {len(known)}",
        f"{len(believed)} of {len(known)}" if verdicts else "–",
        classes.count("says so") if verdicts else "–",
        classes.count("silent"),
        f"{sum(map(trust_is_wrong, trusting))} of {len(trusting)}" if verdicts else "–",
        f"{sum(map(needless_warning, good))} of {len(good)}" if verdicts else "–",
        sum(row["status"] in FALSE_ENDINGS for row in own),
        f"{statistics.median(seconds):.1f}" if seconds else "–",
        f"{statistics.median(first):.1f}" if first else "–",
        f"{statistics.median(ratios):.2f}" if ratios else "–",
        f"{sum(ratio <= 1 for ratio in ratios)} of {len(ratios)}",
    ]


def by_model(rows: list[Row], names: list[str], references: References) -> list[str]:
    """One line for each model: what it is, how `auto` did, and the seconds beside NUTS's."""
    head = ("model", "dim", "kind", "worst fit", "error", "ending", "verdict", "q", "auto", "NUTS")
    lines = [line(head), line(["---"] * len(head))]
    for name in names:
        own = [row for row in rows if row["model"] == name]
        ours = [row for row in own if row["tool"] == "auto"]
        if not ours:
            continue
        worst = max(ours, key=_badness)
        dim = references[name]["dim"] if name in references else ""
        cells = [name, dim, load(name).about.rstrip("."), *_worst_cells(worst)]
        lines.append(line([*cells, _median(ours), _median([r for r in own if r["tool"] == "nuts"])]))
    return lines


def without(names: list[str], references: References) -> list[str]:
    """Which models have no reference, and why."""
    missing = [name for name in names if name not in references]
    bad = []
    for name in names:
        truth = references.get(name)
        if truth is not None and not truth["good"]:
            chains = f", R-hat {max(truth['r_hat']):.3f}" if "r_hat" in truth else ""
            bad.append(f"{name} ({truth['how']}{chains}, {truth.get('divergent', 0)} divergent)")
    lines = [f"No reference, as chains do not agree: {'; '.join(bad)}."] if bad else []
    lines += [f"References not made yet: {len(missing)}, {', '.join(missing)}."] if missing else []
    return lines or ["Every model has a reference."]


def _worst_cells(row: Row) -> list[str]:
    if row["mean_error"] is None:
        return ["–", "–", row["status"], row["verdict"], row.get("fitted", "–")]
    error = row["mean_error"] if row["corrected_error"] is None else row["corrected_error"]
    off = f"{error:.2f}" if error < 1e4 else "far"
    label = classify(row, TRUTH)
    return [label, f"{off} {row['worst']}", row["status"], row["verdict"], row.get("fitted", "–")]


def _badness(row: Row) -> tuple[int, float]:
    if row["mean_error"] is None:
        return (0, 0.0)
    return (["right", "says so", "silent"].index(classify(row, TRUTH)), row["mean_error"])


def _nuts_seconds(rows: list[Row]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["tool"] == "nuts" and "processor_seconds" in row:
            found.setdefault((row["model"], row["label"]), []).append(row["processor_seconds"])
    return {key: statistics.median(values) for key, values in found.items()}


def _median(rows: list[Row]) -> str:
    known = [row["processor_seconds"] for row in rows if "processor_seconds" in row]
    return f"{statistics.median(known):.1f}" if known else "–"
