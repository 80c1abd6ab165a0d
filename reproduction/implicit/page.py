"""Tables of the study, from stored cells only, written into docs/implicit.md between two marks."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

BEGIN, END = "<!-- study: begin -->", "<!-- study: end -->"


def write(cells: Path, here: Path) -> None:
    """Replace the tables of the docs page by those of the cells."""
    page = here.parents[1] / "docs" / "implicit.md"
    text = page.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(before + BEGIN + "\n\n" + "\n".join(sections(cells)) + "\n" + END + after)


def sections(cells: Path) -> list[str]:
    """The three parts, each if it has cells."""
    stored: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for file in sorted(cells.glob("*.json")):
        stored[file.stem.split("-")[0]] += json.loads(file.read_text())
    lines: list[str] = []
    if stored["scores"]:
        lines += scores(stored["scores"])
    if stored["distances"]:
        lines += distances(stored["distances"])
    if stored["energies"]:
        lines += energies(stored["energies"])
    return lines


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def scores(rows: list[dict[str, Any]]) -> list[str]:
    """Median squared error of the score relative to UIVI's, along training, for each target."""
    lines = ["### Error of the score along training", ""]
    for target in _order(row["target"] for row in rows):
        own = [row for row in rows if row["target"] == target]
        shares = _order(row["share"] for row in own)
        seeds = len({row["seed"] for row in own})
        head = " | ".join(f"after {share:.0%}" for share in shares)
        title = (
            f"**{target}**, {seeds} seed{'s' if seeds > 1 else ''}: median over points of the squared"
        )
        lines += [f"{title} error, relative to that of UIVI with 5 + 5 states.", ""]
        lines += [
            f"| estimate | gradients a point | {head} | ms a call |",
            "|---" * (3 + len(shares)) + "|",
        ]
        plain = _cell(own, "UIVI, 5 + 5 states", shares, "median")
        for name in _order(row["estimator"] for row in own):
            values = _cell(own, name, shares, "median")
            ratios = " | ".join(f"{v / p:.2g}" for v, p in zip(values, plain, strict=True))
            some = [row for row in own if row["estimator"] == name]
            cost = _mean([row["cpu_ms"] for row in some])
            lines.append(f"| {name} | {some[0]['gradients'] or '–'} | {ratios} | {cost:.1f} |")
        lines.append("")
    return lines


def _cell(rows: list[dict[str, Any]], name: str, shares: list[float], key: str) -> list[float]:
    found = []
    for share in shares:
        some = [row[key] for row in rows if row["estimator"] == name and row["share"] == share]
        found.append(_mean(some))
    return found


def distances(rows: list[dict[str, Any]]) -> list[str]:
    """Sliced Wasserstein distance and MMD at the end, by target and method."""
    last = [row for row in rows if row["share"] == 1.0]
    targets, methods = _order(r["target"] for r in last), _order(r["method"] for r in last)
    lines = ["### Distance to the posterior", ""]
    lines += [
        "Sliced Wasserstein distance to reference draws, in their standard deviations, ± its standard"
    ]
    lines += ["error; `reference` is that between two halves of the reference.", ""]
    lines += ["| method | " + " | ".join(targets) + " |", "|---" * (1 + len(targets)) + "|"]
    for method in methods:
        parts = []
        for target in targets:
            some = [r for r in last if (r["target"], r["method"]) == (target, method)]
            if not some:
                parts.append("–")
                continue
            value = _mean([r["sliced"] for r in some])
            error = np.sqrt(np.mean([r["sliced_error"] ** 2 for r in some]) / len(some))
            if len(some) > 1:
                error = max(error, np.std([r["sliced"] for r in some], ddof=1) / np.sqrt(len(some)))
            parts.append(f"{value:.3f} ± {error:.3f}")
        lines.append(f"| {method} | " + " | ".join(parts) + " |")
    lines.append("")
    return lines


def energies(rows: list[dict[str, Any]]) -> list[str]:
    """Held-back log likelihood by problem and method, and the gradient's error."""
    problems, methods = _order(r["problem"] for r in rows), _order(r["method"] for r in rows)
    lines = ["### Energies", "", "Mean log likelihood of held-back rows at equal processor seconds.", ""]
    lines += ["| method | " + " | ".join(problems) + " |", "|---" * (1 + len(problems)) + "|"]
    for method in methods:
        parts = []
        for problem in problems:
            some = [r for r in rows if (r["problem"], r["method"]) == (problem, method)]
            values = [r["log_likelihood"] for r in some]
            spread = f" ± {np.std(values, ddof=1) / np.sqrt(len(values)):.3f}" if len(values) > 1 else ""
            parts.append(f"{_mean(values):.3f}{spread}" if some else "–")
        lines.append(f"| {method} | " + " | ".join(parts) + " |")
    ratios = [r for r in rows if "gradient_ratio_order1" in r]
    if ratios:
        lines += [
            "",
            "Mean squared error of E_p ∇E at the fitted energy over that of the plain mean, 4d draws:",
            "",
        ]
        lines += ["| problem | draws | order 1 | order 2 |", "|---|---|---|---|"]
        for problem in _order(r["problem"] for r in ratios):
            some = [r for r in ratios if r["problem"] == problem]
            first, second = (_mean([r[f"gradient_ratio_order{o}"] for r in some]) for o in (1, 2))
            lines.append(f"| {problem} | {some[0]['gradient_draws']} | {first:.2f} | {second:.2f} |")
    lines.append("")
    return lines


def _order(values: Any) -> list[Any]:
    """Distinct values in order of appearance."""
    return list(dict.fromkeys(values))
