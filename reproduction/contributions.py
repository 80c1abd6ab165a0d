"""What the start, the step rule and the estimator each contribute, and the picture of the README.

Run from the repository: python reproduction/contributions.py [--run] [--out FILE]
`--run` runs what FILE (contributions.json) does not have yet (contributions.toml, all combinations) and
stores for each run where it ends, the mean ELBO over its last tenth, and when it came to a few marks and
stayed there. Without it, the picture is drawn from what is stored.
"""

import argparse
import json
import math
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from quietgrad.report.canvas import SETTINGS

HERE = Path(__file__).parent
PATH = HERE / "contributions.json"
PICTURE = HERE.parent / "docs" / "images" / "headline.svg"
STARTS = {"mean-field": "paper's start", "mean-field-narrow": "narrow start"}
RULES = {
    "constant": "constant step 0.01",
    "falling": "falling from 0.01",
    "falling from 0.05": "falling from 0.05",
}
PLACE = ("redwine", "mean-field")
ESTIMATORS = {
    "nocv 10": ("plain gradients, 10 draws", "#d1372c", "o"),
    "nocv 50": ("plain gradients, 50 draws", "#d1372c", "s"),
    "quadcv 10": ("QuadCV, 10 draws", "#009e73", "D"),
    "quiet 2": ("quiet, 2 draws", "#7b3fa0", "o"),
}
# Where the axis begins: what is nearer to the best than the error of an ELBO is drawn there.
NEAREST = 0.3


def run(path: Path = PATH) -> None:
    """Run what is not stored yet, one line for each run."""
    from quietgrad._util.environment import current_environment
    from quietgrad.evaluation.arrival import held_index
    from quietgrad.study.plan import plan
    from quietgrad.study.plateau import late_elbo
    from quietgrad.study.read_spec import load
    from quietgrad.study.run_cell import run_cell

    rows, environment = stored(path), current_environment()
    known = {(row["start"], row["label"], row["rep"]) for row in rows}
    for job in plan(load(str(HERE / "contributions.toml"))):
        place = (job.cell.family, job.cell.label, job.cell.rep)
        if place in known:
            continue
        record = run_cell(job)
        if record.status != "done":
            raise RuntimeError(f"{job.cell.name}: {record.reason}")
        # Arrivals at a few marks: the best is known when all have been run.
        marks = [-145.0 - 0.25 * step for step in range(24)]
        steps = [held_index(record.elbo, mark) for mark in marks]
        rows.append(
            {
                "start": place[0],
                "label": place[1],
                "rep": place[2],
                "elbo": round(late_elbo(record), 4),
                "error": round(float(record.outcome["elbo_error"]), 4),
                "arrivals": [
                    [mark, None if at is None else int(record.column("step")[at])]
                    for mark, at in zip(marks, steps, strict=True)
                ],
            }
        )
        lines = ",\n".join(json.dumps(row) for row in rows)
        about = json.dumps({"format": 1, "environment": environment})
        part = path.with_suffix(".part")
        part.write_text(f'{about[:-1]}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
        part.replace(path)
        print(*place, rows[-1]["elbo"], flush=True)


def stored(path: Path = PATH) -> list[dict[str, Any]]:
    """The rows of contributions.json."""
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else []


def ends(rows: list[dict[str, Any]]) -> dict[tuple[str, str, str], np.ndarray]:
    """ELBOs by start, step rule and estimator, one for each repetition."""
    found: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        if match := re.fullmatch(r"(\w+ \d+), (.+)", row["label"]):
            found.setdefault((row["start"], match[2], match[1]), []).append(row["elbo"])
    return {place: np.array(values) for place, values in found.items()}


def best(rows: list[dict[str, Any]]) -> float:
    """The best mean over repetitions of any combination here, and of any stored row of their judge."""
    from results import judge, plain, read

    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        groups.setdefault((row["start"], row["label"]), []).append(row["elbo"])
    results = read()
    same = judge(results.runs(*PLACE, plain(PLACE[1]))[0])
    keys = {
        (run.cell.group, run.cell.label, run.cell.draws)
        for run in results.study.done
        if (run.cell.task, run.cell.family) == PLACE
        and run.cell.group in ("main", "decay")
        and judge(run) == same
    }
    levels = [level.middle for key in keys if (level := results.level(*PLACE, key)) is not None]
    return max(*(float(np.mean(values)) for values in groups.values()), *levels)


def effects(rows: list[dict[str, Any]]) -> dict[str, list[float]]:
    """Nats that one change gains, everything else equal: a number for each combination of the rest."""
    levels = {place: float(np.mean(values)) for place, values in ends(rows).items()}

    def change(where: int, before: str, after: str) -> list[float]:
        pairs = [
            (place, (*place[:where], after, *place[where + 1 :]))
            for place in levels
            if place[where] == before
        ]
        return [levels[other] - levels[place] for place, other in pairs if other in levels]

    return {
        "start": change(0, "mean-field", "mean-field-narrow"),
        "falling": change(1, "constant", "falling"),
        "bold": change(1, "constant", "falling from 0.05"),
        "quadcv": change(2, "nocv 10", "quadcv 10"),
        "quiet": change(2, "nocv 10", "quiet 2"),
        "fifty": change(2, "nocv 10", "nocv 50"),
    }


def draw(rows: list[dict[str, Any]]) -> Figure:
    """A line for each start and step rule, a mark for each estimator: nats below the best at the end."""
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axis = figure.subplots()
    top, levels = best(rows), ends(rows)
    names = []
    for place, (start, rule) in enumerate((s, r) for s in STARTS for r in RULES):
        names.append(f"{STARTS[start]},\n{RULES[rule]}")
        for shift, (label, (_, colour, mark)) in enumerate(ESTIMATORS.items()):
            values = levels.get((start, rule, label))
            if values is None:
                continue
            gaps = np.maximum(top - values, NEAREST)
            height = np.full(len(gaps), place + 0.17 * (shift - 1.5))
            axis.plot(gaps, height, "-", color=colour, lw=1, alpha=0.6)
            face = "white" if mark == "s" else colour
            axis.plot(np.median(gaps), height[0], mark, color=colour, mfc=face, ms=6.5)
    auto = [row["elbo"] for row in rows if row["label"] == "auto"]
    if auto:
        gap = max(top - float(np.median(auto)), NEAREST)
        axis.axvline(gap, color="#e69f00", lw=2.2, zorder=0)
    for _, (name, colour, mark) in ESTIMATORS.items():
        face = "white" if mark == "s" else colour
        axis.plot([], [], mark, color=colour, mfc=face, ms=6.5, label=name)
    if auto:
        axis.plot([], [], color="#e69f00", lw=2.2, label="auto: no settings, its own end")
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.set_xscale("log")
    axis.set_xlim(NEAREST / 1.3, None)
    axis.axvline(1.0, color="#888888", lw=0.8, ls=":")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_xlabel("nats below the best ELBO after 6,000 steps\n(median and range of 3 starts)")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=11)
    title = "A Bayesian network (653 parameters): left is better"
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def main() -> None:
    """Run if asked to, then draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--out", type=Path, default=PATH)
    arguments = parser.parse_args()
    if arguments.run:
        run(arguments.out)
    rows = stored(arguments.out)
    for name, values in effects(rows).items():
        middle = float(np.median(values)) if values else math.nan
        print(f"{name}: median {middle:+.2f}, from {min(values):+.2f} to {max(values):+.2f} nats")
    with mpl.rc_context({**SETTINGS, "font.size": 11.5}):
        draw(rows).savefig(PICTURE, metadata={"Date": None})
    print(PICTURE.relative_to(HERE.parent))


if __name__ == "__main__":
    main()
