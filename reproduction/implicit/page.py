"""Tables of the study, from stored cells only, written into docs/implicit.md between two marks."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from .claims import (
    CONTENDERS,
    DEFAULT,
    LIKELIHOODS,
    SERIES,
    after,
    dimensions,
    distance,
    gradient_ratio,
    interval,
    likelihoods,
    order,
    said,
    score_ratio,
)

BEGIN, END = "<!-- study: begin -->", "<!-- study: end -->"


def write(cells: Path, here: Path) -> None:
    """Replace the tables of the docs page by those of the cells."""
    page = here.parents[1] / "docs" / "implicit.md"
    text = page.read_text()
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(before + BEGIN + "\n\n" + "\n".join(sections(cells)) + "\n" + END + after)
    from .figures import draw

    draw(rows_of(cells), here.parents[1] / "docs" / "images")


def sections(cells: Path) -> list[str]:
    """The claims, and the four parts, each if it has cells."""
    stored = rows_of(cells)
    lines = ["### What the rows say", ""]
    seconds = {r["seconds"] for r in stored["distances"] if r["method"] in CONTENDERS}
    if seconds:
        lines += [f"Draws are compared after {max(seconds):.0f} processor seconds of training.", ""]
    took = {file: rows[0]["cell_seconds"] for file, rows in _files(cells) if "cell_seconds" in rows[0]}
    if took:
        minutes = sum(took.values()) / 60
        lines[-1:] = [
            f"The {len(took)} cells that have a time took {minutes:.0f} processor minutes.",
            "",
        ]
    lines += [*said(stored), ""]
    parts = {"scores": scores, "distances": distances, "gradients": gradients}
    parts |= {"energies": energies, "longer": longer}
    for name, part in parts.items():
        if stored[name]:
            lines += part(stored[name])
    return lines


def rows_of(cells: Path) -> dict[str, list[dict[str, Any]]]:
    """All stored rows by their part, in the order of the plan as far as names have it."""
    stored: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for part, rows in _files(cells):
        stored[part.split("-")[0]] += rows
    return stored


def _files(cells: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """Names of the stored cells, and their rows."""
    return [(file.stem, json.loads(file.read_text())) for file in sorted(cells.glob("*.json"))]


def _mean(values: list[float]) -> float:
    return float(np.mean(values))


def scores(rows: list[dict[str, Any]]) -> list[str]:
    """Median squared error of the score relative to UIVI's, along training, for each target."""
    lines = ["### Error of the score along training", ""]
    lines += ["![Error of the score relative to UIVI's](images/implicit-scores.svg)", ""]
    for target in order(row["target"] for row in rows if not row["target"].startswith(SERIES)):
        own = [row for row in rows if row["target"] == target]
        shares = order(row["share"] for row in own)
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
        for name in order(row["estimator"] for row in own):
            values = _cell(own, name, shares, "median")
            ratios = " | ".join(f"{v / p:.2g}" for v, p in zip(values, plain, strict=True))
            some = [row for row in own if row["estimator"] == name]
            cost = _mean([row["cpu_ms"] for row in some])
            lines.append(f"| {name} | {some[0]['gradients'] or '–'} | {ratios} | {cost:.1f} |")
        lines.append("")
    return lines + by_dimension(rows)


def by_dimension(rows: list[dict[str, Any]]) -> list[str]:
    """Errors on the waveforms at the end of training, by the dimension of eps."""
    series = dimensions(rows)
    if len(series) < 2:
        return []
    seeds = len({row["seed"] for row in rows if row["target"].startswith(SERIES)})
    lines = ["### Error of the score by the dimension of ε", ""]
    lines += ["![Error of the score by the dimension of eps](images/implicit-dimensions.svg)", ""]
    lines += [
        f"**waveform**, trained with ε in k dimensions, {seeds} seed{'s' if seeds > 1 else ''}: median",
        "squared error at the end of training, relative to that of UIVI with 5 + 5 states.",
        "",
    ]
    lines += ["| estimate | " + " | ".join(f"k = {k}" for k in series) + " |"]
    lines += ["|---" * (1 + len(series)) + "|"]
    for name in order(row["estimator"] for row in rows):
        parts = " | ".join(f"{score_ratio(own, name):.2g}" for own in series.values())
        lines.append(f"| {name} | {parts} |")
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
    targets, methods = order(r["target"] for r in last), order(r["method"] for r in last)
    lines = ["### Distance to the posterior", ""]
    lines += ["![Distance to the posterior by seconds](images/implicit-distances.svg)", ""]
    lines += [
        "Distances to reference draws, in their standard deviations, ± their standard errors, of draws",
        "and seeds; `reference` is that between two halves of the reference.",
    ]
    for key, title in (("sliced", "sliced Wasserstein"), ("mmd", "MMD")):
        lines += ["", f"| {title} | " + " | ".join(targets) + " |", "|---" * (1 + len(targets)) + "|"]
        for method in methods:
            found = [distance(last, target, method, key) for target in targets]
            parts = ["–" if d is None else f"{d[0]:.3f} ± {d[1]:.3f}" for d in found]
            lines.append(f"| {method} | " + " | ".join(parts) + " |")
    lines += ["", "Rates that were chosen on other seeds, and thousands of steps in these seconds:", ""]
    lines += ["| method | " + " | ".join(targets) + " |", "|---" * (1 + len(targets)) + "|"]
    for method in methods:
        own = [r for r in last if r["method"] == method and "rate" in r]
        if not own:
            continue
        parts = []
        for target in targets:
            at = [r for r in own if r["target"] == target]
            steps = _mean([r["steps"] for r in at]) / 1000 if at else 0.0
            parts.append(f"{at[0]['rate']:g}, {steps:.1f}" if at else "–")
        lines.append(f"| {method} | " + " | ".join(parts) + " |")
    lines.append("")
    return lines


def gradients(rows: list[dict[str, Any]]) -> list[str]:
    """The gradient's error by rule, along training, for each problem and number of chains."""
    lines = ["### Error of an energy's gradient along training", ""]
    lines += ["![Error of the gradient relative to the plain mean's](images/energy-gradients.svg)", ""]
    lines += [
        "Mean squared error of E_p ∇E over that of the plain mean of as many chains. Chains begin at",
        "exact draws of p and make five MALA moves; `ends` are the places after them, `all points` the",
        "starts and every proposal, with the masses of Metropolis' rule. All rows have the same",
        'gradients in x. `the default` is what `method="stein"` uses.',
        "",
    ]
    for problem in order(r["problem"] for r in rows):
        own = [r for r in rows if r["problem"] == problem]
        shares = order(r["share"] for r in own)
        counts = sorted(order(r["chains_over_dim"] for r in own))
        seeds = len({r["seed"] for r in own})
        lines += [f"**{problem}**, d = {own[0]['dim']}, {seeds} seed{'s' if seeds > 1 else ''}.", ""]
        head = " | ".join(f"{c}d, {share:.0%}" for c in counts for share in shares)
        lines += [f"| rule | {head} |", "|---" * (1 + len(shares) * len(counts)) + "|"]
        for rule in sorted(order(r["rule"] for r in own), key=_plain_first):
            parts = []
            for count in counts:
                for share in shares:
                    at = [r for r in own if (r["chains_over_dim"], r["share"]) == (count, share)]
                    parts.append(f"{gradient_ratio(at, rule):.2g}")
            lines.append(f"| {rule} | " + " | ".join(parts) + " |")
        lines.append("")
    return lines


def _plain_first(rule: str) -> tuple[bool, bool, str]:
    return not rule.startswith("plain"), rule == DEFAULT, rule


def energies(rows: list[dict[str, Any]]) -> list[str]:
    """The figure and the tables of likelihoods."""
    title, *tables = longer(rows)
    return [title, "", "![Likelihood of energies by method](images/energy-likelihoods.svg)", *tables]


def longer(rows: list[dict[str, Any]]) -> list[str]:
    """Log likelihood of rows held back, and of those of the fit, by problem and method."""
    problems, methods = order(r["problem"] for r in rows), order(r["method"] for r in rows)
    lines = [f"### Likelihood of energies{after(rows)}", ""]
    lines += [
        "Mean log likelihood a row at equal processor seconds, ± half of a 90 % interval over seeds."
    ]
    for key, title in LIKELIHOODS.items():
        lines += ["", f"| {title} | " + " | ".join(problems) + " |", "|---" * (1 + len(problems)) + "|"]
        for method in methods:
            parts = []
            for problem in problems:
                values = likelihoods(rows, problem, method, key)
                if not values:
                    parts.append("–")
                    continue
                mean, half = interval(values)
                parts.append(f"{mean:.4f}" + ("" if np.isnan(half) else f" ± {half:.4f}"))
            lines.append(f"| {method} | " + " | ".join(parts) + " |")
    lines += ["", "Chains and rates that were chosen on other seeds, and steps in these seconds:", ""]
    lines += ["| method | " + " | ".join(problems) + " |", "|---" * (1 + len(problems)) + "|"]
    for method in methods:
        parts = []
        for problem in problems:
            own = [r for r in rows if (r["problem"], r["method"]) == (problem, method)]
            steps = _mean([r["steps"] for r in own]) if own else 0.0
            parts.append(f"{own[0]['chains']}, {own[0]['rate']:g}, {steps:,.0f}" if own else "–")
        lines.append(f"| {method} | " + " | ".join(parts) + " |")
    lines.append("")
    return lines
