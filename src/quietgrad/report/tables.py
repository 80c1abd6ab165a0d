"""The tables of the page, as plain rows of text."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..study.clock import Clock, clock_of
from ..study.clock import seconds as seconds_of
from ..study.records import Record
from ..study.summary import Row, best_elbo
from ..study.timing import Timing
from .names import FAMILIES, TASKS, family_name, in_order, label_name, styles
from .numbers import count, nats, number
from .stored_study import StoredStudy


@dataclass(frozen=True)
class Place:
    """Arrivals on one task and family, the fastest first; `first` marks it."""

    title: str
    best: str
    rows: list[dict[str, str]]


def time_to_target(study: StoredStudy, rows: Sequence[Row]) -> list[Place]:
    """For each task and family: seconds and steps to within 1 nat of the best."""
    best = best_elbo(study.done)
    places = []
    for task in in_order((row.task for row in rows), study.tasks()):
        for family in in_order((row.family for row in rows), study.families()):
            here = [row for row in rows if (row.task, row.family) == (task, family)]
            if (task, family) in best:
                title = f"{study.task_name(task)} – {family_name(family)}"
                ranked = sorted(here, key=_rank)
                names = [(row.label, row.draws) for row in here]
                told = [
                    _arrival(row, again=names.count((row.label, row.draws)) > 1, first=row is ranked[0])
                    for row in ranked
                ]
                places.append(Place(title, nats(best[task, family]), told))
    return places


def _rank(row: Row) -> tuple[bool, bool, float, float]:
    """Those that arrived, by the clock and then by steps; then the others, the nearest first."""
    seconds, steps = row.seconds_to_target, row.steps_to_target
    when = seconds if seconds is not None else steps
    return when is None, seconds is None, when or 0.0, row.gap


def _arrival(row: Row, *, again: bool, first: bool) -> dict[str, str]:
    """A line; a row that was run `again` in another group says which."""
    group = f" ({row.group})" if again and row.group != "main" else ""
    return {
        "label": f"{label_name(row.label)}{group}",
        "draws": "" if row.draws is None else str(row.draws),
        "short": row.shortfall,
        "seconds": number(row.seconds_to_target) if row.timed else "not timed",
        "steps": number(row.steps_to_target) if row.steps_to_target is None else _steps(row),
        "arrived": f"{row.arrived} of {row.reps}",
        "plateau": f"{row.plateaus} of {row.reps}",
        "elbo": nats(row.elbo),
        "total": number(row.seconds),
        "ratio": number(row.variance_ratio),
        "compile": number(row.compile_seconds, 2),
        "first": "first" if first and not row.shortfall else "",
    }


def _steps(row: Row) -> str:
    return f"{row.steps_to_target:,.0f}"


def unfinished(study: StoredStudy) -> list[dict[str, str]]:
    """Cells without results, and why."""
    return [
        {"cell": record.cell.name, "status": record.status, "reason": record.reason}
        for record in study.records
        if record.status != "done"
    ]


def non_finite(study: StoredStudy) -> list[dict[str, str]]:
    """Finished cells whose parameters turned NaN or infinite on the way."""
    return [
        {"cell": record.cell.name, "step": f"{_last(record, 'step'):,.0f}"}
        for record in study.done
        if record.outcome.get("fit_status") == "non-finite"
    ]


def cells(study: StoredStudy) -> list[dict[str, str]]:
    """Every cell in a line."""
    return [
        {
            "cell": record.cell.name,
            "status": str(record.outcome.get("fit_status") or record.status),
            "elbo": nats(float(record.outcome.get("elbo", np.nan))),
            "error": number(float(record.outcome.get("elbo_error", np.nan)), 2),
            "steps": f"{_last(record, 'step'):,.0f}",
            "seconds": _seconds(record),
            "compile": number(float(record.outcome.get("compile_seconds", np.nan)), 2),
            "rate": "" if record.cell.learning_rate is None else f"{record.cell.learning_rate:g}",
            "seed": str(record.seed),
            "commit": _commit(record),
        }
        for record in study.records
    ]


def _last(record: Record, column: str) -> float:
    values = record.column(column) if column in record.columns else np.array([])
    return float(values[-1]) if len(values) else 0.0


def _seconds(record: Record) -> str:
    spent = seconds_of(record)
    return number(float(spent[-1])) if len(spent) else "–"


def _commit(record: Record) -> str:
    commit = str(record.environment.get("commit") or "")[:7]
    return f"{commit}+" if record.environment.get("dirty") else commit


def about(study: StoredStudy) -> list[tuple[str, str]]:
    """What was run, where, and with which versions."""
    cells_ = [record.cell for record in study.records]
    steps = sorted({cell.steps for cell in cells_ if cell.steps is not None})
    draws = sorted({cell.draws for cell in cells_ if cell.draws is not None})
    facts = [
        ("study", study.name),
        ("begun", _date(study, "created")),
        ("last run", _date(study, "updated")),
        ("tasks", "; ".join(map(study.task_name, in_order((c.task for c in cells_), TASKS)))),
        ("families", "; ".join(map(family_name, in_order((c.family for c in cells_), FAMILIES)))),
        ("estimators and methods", "; ".join(map(label_name, styles(study.records)))),
        ("draws a step", ", ".join(map(str, draws)) or "as the methods choose"),
        ("repetitions", str(len({cell.rep for cell in cells_}))),
        ("steps", " or ".join(f"{number:,}" for number in steps) or "until the methods end"),
        ("seeds", f"{len({r.seed for r in study.records})}, shared by all rows of a repetition"),
        (
            "ELBOs",
            "; ".join(
                dict.fromkeys(str(r.outcome["judge"]) for r in study.done if "judge" in r.outcome)
            ),
        ),
        ("clock", _clock(study)),
    ]
    return [*facts, *_environment(study)]


def _date(study: StoredStudy, key: str) -> str:
    text = str(study.manifest.get(key, "not recorded"))
    return text.replace("T", " ").replace("+00:00", " UTC") if text[:1].isdigit() else text


def _clock(study: StoredStudy) -> str:
    clocks = {clock_of(record) for record in study.done}
    told = []
    if Clock.TIMING_PASS in clocks and study.timing is not None:
        told.append(f"steps times the seconds of a step, {_measured(study.timing)}")
    if Clock.OWN in clocks:
        told.append("each timed cell alone on its machine; compilation and evaluation are not counted")
    if Clock.NONE in clocks:
        told.append(
            "some cells ran beside others and have none, for which there is quietgrad study time"
        )
    return "; ".join(told) or "nothing finished"


def _measured(timing: Timing) -> str:
    """When, in how many rounds, beside how much other work and by which commit steps were timed."""
    passes = timing.passes
    days = sorted({each.measured[:10] for each in passes})
    counts = sorted({len(time.rounds) for each in passes for time in each.times if time.rounds})
    pieces = f" in {len(passes)} pieces" if len(passes) > 1 else ""
    shares = [each.others for each in passes if not math.isnan(each.others)]
    others = f", while other work took {max(shares):.1%} of the processors at most" if shares else ""
    commits = dict.fromkeys(str(each.environment.get("commit"))[:12] for each in passes)
    return (
        f"measured apart on {' to '.join(dict.fromkeys((days[0], days[-1])))}{pieces}, each in "
        f"{' or '.join(map(str, counts))} interleaved rounds{others}, by commit {', '.join(commits)}"
    )


def _environment(study: StoredStudy) -> list[tuple[str, str]]:
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
    used = [] if threads is None else [f"{count(threads, 'thread')} used"]
    return ", ".join(text for text in (cpu, kind, f"{cores} cores", *used) if text)
