"""The tables of the published study, as Markdown. `tables.py` puts them into the pages."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from quietgrad.study.claims import Part, Verdict, judge

from quietgrad.report.bias import bias_rows
from quietgrad.report.names import label_name
from quietgrad.report.numbers import nats, number
from quietgrad.report.stored_study import StoredStudy
from quietgrad.study.plateau import late_elbo, on_plateau
from quietgrad.study.records import Record
from quietgrad.study.summary import Row

TASKS = ("a1a", "frisk", "redwine-mini", "redwine")
SHORT = {"mean-field": "mean-field", "low-rank": "rank 5", "real-nvp": "Real NVP"}
PAPER = ("nocv", "zvcv-gd", "quadcv")
FREE = ("rqmc", "quiet", "quadcv-fast")


@dataclass(frozen=True)
class Results:
    """What the tables are made from."""

    study: StoredStudy
    rows: Sequence[Row]

    def row(
        self, task: str, family: str, label: str, draws: int | None, group: str = "main"
    ) -> Row | None:
        """The medians of one row of the study, None if it was not run."""
        wanted = (group, task, family, label, draws)
        found = (r for r in self.rows if (r.group, r.task, r.family, r.label, r.draws) == wanted)
        return next(found, None)

    def records(self, task: str, family: str, label: str, draws: int | None) -> list[Record]:
        """The repetitions of one row of the main grid."""
        wanted = (task, family, label, draws)
        cells = ((record, record.cell) for record in self.study.main)
        return [r for r, c in cells if (c.task, c.family, c.label, c.draws) == wanted]

    def quiet(self, task: str, family: str) -> Row | None:
        """`quiet` with the draws that it takes by itself."""
        own = self.row(task, family, "quiet, 2 draws", None)
        return own or self.row(task, family, "quiet", 10)


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells must not hold a vertical bar."""
    rule = ["---"] * len(heads)
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rule, *lines))


def claims(results: Results) -> str:
    """The paper's claims with what was measured and the verdict."""
    heads = ["", "the paper", "measured here, with a 90% interval or a count", "verdict"]
    return table(
        heads,
        (
            [str(c.number), c.text, "<br>".join(map(_part, c.parts)), f"**{c.verdict}**"]
            for c in judge(results.study.records)
        ),
    )


def _part(part: Part) -> str:
    mark = {Verdict.HOLDS: "✓", Verdict.DOES_NOT: "✗", Verdict.CANNOT_TELL: "?"}[part.verdict]
    if not part.value:
        return f"{mark} {_signed(part.why)}"
    return f"{mark} {_signed(part.value)}" + (
        f" ({_signed(part.uncertainty)})" if part.uncertainty else ""
    )


def ends(results: Results) -> str:
    """Where runs end: medians over repetitions that reached a plateau, and how many did."""
    columns = [(label, draws) for draws in (10, 50) for label in PAPER]
    heads = ["task", "family", *(f"{label_name(label)} {draws}" for label, draws in columns)]
    lines = []
    for task, family in _places(results):
        cells = [_end(results.records(task, family, label, draws)) for label, draws in columns]
        ours = [_answer(results.quiet(task, family)), _answer(results.row(task, family, "auto", None))]
        lines.append([task, SHORT[family], *cells, *ours])
    return table([*heads, "quiet", "auto"], lines)


def _end(records: Sequence[Record]) -> str:
    there = [late_elbo(record) for record in records if on_plateau(record)]
    count = "" if len(there) == len(records) else f" ({len(there)} of {len(records)})"
    if not records:
        return "not run"
    return f"{nats(float(np.median(there)))}{count}" if there else f"still rising{count}"


def _answer(row: Row | None) -> str:
    return "not run" if row is None else nats(row.elbo)


def arrivals(results: Results) -> str:
    """Seconds until the ELBO is within 1 nat of the best of all rows, and stays there."""
    columns = [*((label, draws) for draws in (10, 50) for label in PAPER)]
    heads = ["task", "family", *(f"{label_name(label)} {draws}" for label, draws in columns)]
    lines = []
    for task, family in _places(results):
        rows = [results.row(task, family, label, draws) for label, draws in columns]
        rows += [results.quiet(task, family), results.row(task, family, "auto", None)]
        lines.append([task, SHORT[family], *map(_arrival, rows)])
    return table([*heads, "quiet", "auto"], lines)


def _arrival(row: Row | None) -> str:
    if row is None:
        return "not run"
    if row.seconds_to_target is not None:
        return f"**{number(row.seconds_to_target, 2)} s**"
    return row.shortfall.replace("ends ", "−").replace(" short", "") if row.shortfall else "no clock"


def step_cost(results: Results) -> str:
    """What a step costs, against NoCV with ten draws."""
    heads = [
        "task",
        "family",
        "NoCV 10, µs a step",
        "ZVCV-GD 10",
        "QuadCV 10",
        "quiet",
        "NoCV 50",
        "QuadCV 50",
    ]
    lines = []
    for task, family in _places(results):
        plain = results.row(task, family, "nocv", 10)
        if plain is None or not plain.step_seconds > 0:
            continue
        others = [results.row(task, family, *key) for key in (("zvcv-gd", 10), ("quadcv", 10))]
        others += [results.quiet(task, family)]
        others += [results.row(task, family, *key) for key in (("nocv", 50), ("quadcv", 50))]
        lines.append([task, SHORT[family], f"{1e6 * plain.step_seconds:,.0f}"])
        lines[-1] += [
            "–" if o is None else f"{o.step_seconds / plain.step_seconds:.2f}×" for o in others
        ]
    return table(heads, lines)


def variance(results: Results) -> str:
    """Late variance ratios to NoCV at ten draws."""
    labels = ("zvcv-gd", "quadcv", *FREE)
    lines = []
    for task, family in _places(results):
        rows = [results.row(task, family, label, 10) for label in labels]
        told = ["–" if row is None else number(row.variance_ratio, 2) for row in rows]
        lines.append([task, SHORT[family], *told])
    return table(["task", "family", *map(label_name, labels)], lines)


def decay(results: Results) -> str:
    """What a step size that falls to zero gains, beside what a quieter gradient gains."""
    columns = (
        ("NoCV, 10 draws", ("nocv", 10, "main")),
        ("the same, decaying step", ("nocv, decaying", None, "decay")),
        ("QuadCV, 10 draws", ("quadcv", 10, "main")),
        ("quiet, 2 draws", ("quiet, 2 draws", None, "main")),
        ("the same, decaying step", ("quiet, decaying", None, "decay")),
        ("auto", ("auto", None, "main")),
    )
    lines = []
    for task in TASKS:
        rows = [results.row(task, "mean-field", *key) for _, key in columns]
        told = ["not run" if row is None else f"{nats(row.elbo)}{_spent(row)}" for row in rows]
        lines.append([task, *told])
    return table(["task (mean-field)", *(name for name, _ in columns)], lines)


def _spent(row: Row) -> str:
    return f" in {number(row.seconds, 2)} s" if row.timed else ""


def bias(results: Results) -> str:
    """Squared bias, variance and mean squared error, relative to NoCV's variance."""
    heads = ["where", "coefficients", "L", "bias²", "variance", "MSE"]
    keys = ("label", "draws", "bias", "variance", "mse")
    return table(
        heads,
        (
            [row["place"].replace(", Mean-field Gaussian", ""), *(row[key] for key in keys)]
            for row in bias_rows(results.study.directory)
        ),
    )


def _places(results: Results) -> list[tuple[str, str]]:
    return [
        (task, family)
        for family in SHORT
        for task in TASKS
        if any((r.task, r.family) == (task, family) for r in results.rows)
    ]


def _signed(text: str) -> str:
    """Hyphens before numbers as minus signs."""
    return re.sub(r"(?<![\w.])-(?=\d)", "−", text)


TABLES: dict[str, Callable[[Results], str]] = {
    "claims": claims,
    "ends": ends,
    "arrivals": arrivals,
    "step-cost": step_cost,
    "variance": variance,
    "decay": decay,
    "bias": bias,
}
