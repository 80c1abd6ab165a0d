"""The tables of the page, as plain rows of text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..study.records import Record
from ..study.summary import Row, best_elbo
from .names import FAMILIES, TASKS, family_name, in_order, label_name, styles
from .study import Study
from .words import nats, number

NEVER = "never"


@dataclass(frozen=True)
class Place:
    """Arrivals on one task and family, the fastest first; `first` marks it."""

    title: str
    best: str
    rows: list[dict[str, str]]


def time_to_target(study: Study, rows: Sequence[Row]) -> list[Place]:
    """For each task and family: seconds and steps to within 1 nat of the best."""
    best = best_elbo(study.done)
    places = []
    for task in in_order((row.task for row in rows), study.tasks()):
        for family in in_order((row.family for row in rows), study.families()):
            here = [row for row in rows if (row.task, row.family) == (task, family)]
            if (task, family) in best:
                title = f"{study.task_name(task)} – {family_name(family)}"
                ranked = sorted(here, key=_rank)
                told = [_arrival(row, first=row is ranked[0]) for row in ranked]
                places.append(Place(title, nats(best[task, family]), told))
    return places


def _rank(row: Row) -> tuple[bool, float, float]:
    seconds = row.seconds_to_target
    return seconds is None, 0.0 if seconds is None else seconds, -row.elbo


def _arrival(row: Row, *, first: bool) -> dict[str, str]:
    never = row.seconds_to_target is None
    return {
        "label": label_name(row.label),
        "draws": str(row.draws),
        "seconds": NEVER if never else number(row.seconds_to_target),
        "steps": NEVER if row.steps_to_target is None else f"{row.steps_to_target:,.0f}",
        "arrived": f"{row.arrived} of {row.reps}",
        "elbo": nats(row.elbo),
        "total": number(row.seconds),
        "ratio": number(row.variance_ratio),
        "first": "first" if first and not never else "",
    }


def unfinished(study: Study) -> list[dict[str, str]]:
    """Cells without results, and why."""
    return [
        {"cell": record.cell.name, "status": record.status, "reason": record.reason}
        for record in study.records
        if record.status != "done"
    ]


def non_finite(study: Study) -> list[dict[str, str]]:
    """Finished cells whose parameters turned NaN or infinite on the way."""
    return [
        {"cell": record.cell.name, "step": f"{_last(record, 'step'):,.0f}"}
        for record in study.done
        if record.outcome.get("fit_status") == "non-finite"
    ]


def cells(study: Study) -> list[dict[str, str]]:
    """Every cell in a line."""
    return [
        {
            "cell": record.cell.name,
            "status": str(record.outcome.get("fit_status") or record.status),
            "elbo": nats(float(record.outcome.get("elbo", np.nan))),
            "error": number(float(record.outcome.get("elbo_error", np.nan)), 2),
            "steps": f"{_last(record, 'step'):,.0f}",
            "seconds": number(_last(record, "seconds")),
            "compile": number(float(record.outcome.get("compile_seconds", np.nan)), 2),
            "rate": f"{record.cell.learning_rate:g}",
            "seed": str(record.seed),
        }
        for record in study.records
    ]


def _last(record: Record, column: str) -> float:
    values = record.column(column) if column in record.columns else np.array([])
    return float(values[-1]) if len(values) else 0.0


def about(study: Study) -> list[tuple[str, str]]:
    """What was run, where, and with which versions."""
    cells_ = [record.cell for record in study.records]
    steps = sorted({cell.steps for cell in cells_})
    facts = [
        ("study", study.name),
        ("begun", _date(study, "created")),
        ("last run", _date(study, "updated")),
        ("tasks", "; ".join(map(study.task_name, in_order((c.task for c in cells_), TASKS)))),
        ("families", "; ".join(map(family_name, in_order((c.family for c in cells_), FAMILIES)))),
        ("estimators", "; ".join(map(label_name, styles(study.records)))),
        ("draws a step", ", ".join(map(str, sorted({cell.draws for cell in cells_})))),
        ("repetitions", str(len({cell.rep for cell in cells_}))),
        ("steps", " or ".join(f"{number:,}" for number in steps)),
        ("seeds", f"{len({r.seed for r in study.records})}, shared by the estimators; see all cells"),
        ("clock", _clock(study)),
    ]
    return [*facts, *_environment(study)]


def _date(study: Study, key: str) -> str:
    text = str(study.manifest.get(key, "not recorded"))
    return text.replace("T", " ").replace("+00:00", " UTC") if text[:1].isdigit() else text


def _clock(study: Study) -> str:
    if any(record.outcome.get("timed") is False for record in study.done):
        return "not to be trusted: cells were run side by side"
    return "each cell alone on its machine; compilation and evaluation are not counted"


def _environment(study: Study) -> list[tuple[str, str]]:
    found = study.environments
    if not found:
        return []
    here = dict(found[0])
    commit, dirty = here.pop("commit", None), here.pop("dirty", None)
    state = {True: " with uncommitted changes", False: ", unchanged", None: ""}[dirty]
    facts = [
        ("version", f"quietgrad {here.pop('quietgrad', 'unknown')}"),
        ("commit", f"{commit[:12]}{state}" if commit else "an installed package, no commit"),
        ("machine", _machine(here)),
        ("backend", f"{here.pop('backend', '')}, {here.pop('precision', '')}"),
        ("software", ", ".join(f"{name} {value}" for name, value in here.items() if value)),
    ]
    if len(found) > 1:
        facts.append(
            (
                "mixed",
                f"cells come from {len(found)} different environments; the above is "
                "the most frequent one",
            )
        )
    return facts


def _machine(here: dict[str, Any]) -> str:
    """The processor in words; takes what it tells out of `here`."""
    cpu, cores, kind = here.pop("cpu", ""), here.pop("cores", "?"), here.pop("machine", "")
    threads = here.pop("threads", None)
    used = [] if threads is None else [f"{threads} threads used"]
    return ", ".join(text for text in (cpu, kind, f"{cores} cores", *used) if text)
