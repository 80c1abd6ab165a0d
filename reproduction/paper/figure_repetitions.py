"""The full-batch BNN with a mean-field Gaussian, each repetition by itself: a column for each."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from quietgrad.report import canvas
from quietgrad.report.curves import curve, decay, late_limits
from quietgrad.report.figures.plan import Plan
from quietgrad.report.figures.trajectories import comparable, repetitions_told
from quietgrad.report.names import styles
from quietgrad.report.stored_study import StoredStudy, draws_of, has_draws
from quietgrad.study.records import Record

TASKS = ("redwine", "diabetes")
# Nats below the second half of the runs that are shown from close up.
CLOSE = 3.0


@dataclass(frozen=True)
class Kind:
    """One of the four figures. `early` shows the whole climb, otherwise the end of it."""

    name: str
    title: str
    column: str
    axis: str
    early: bool = False


KINDS = (
    Kind("elbo", "ELBO", "elbo", "ELBO (nats)"),
    Kind("variance-ratio", "Variance ratio", "variance_ratio", "variance ratio"),
    Kind("lppd", "Test lppd", "lppd", "test lppd (nats)", early=True),
    Kind("lppd-zoom", "Test lppd from close up", "lppd", "test lppd (nats)"),
)


def repetitions(study: StoredStudy) -> list[Plan]:
    """ELBO, variance ratio, test lppd, and test lppd from close up."""
    task = next((task for task in TASKS if task in study.tasks()), TASKS[0])
    mine = [r for r in study.main if (r.cell.task, r.cell.family) == (task, "mean-field")]
    runs = comparable(mine)
    made = []
    for kind in KINDS:
        drawable = curve(runs, kind.column) is not None
        reason = f"{kind.column} was not evaluated on {task}" if runs else _absent()
        made.append(
            Plan(
                f"repetitions-{kind.name}",
                f"{kind.title}, each repetition: {study.task_name(task)}, mean-field",
                "Each column is one repetition with its own initial point, the same for all that ran. "
                + ("Lower is better." if kind.column == "variance_ratio" else "Higher is better."),
                None,
                (lambda k=kind: _draw(study, runs, k)) if drawable else None,
                "" if drawable else reason,
            )
        )
    return made


def _absent() -> str:
    return f"no finished mean-field run on {' or '.join(TASKS)}"


def _draw(study: StoredStudy, runs: Sequence[Record], kind: Kind) -> Figure:
    looks, draws = styles(study.done), draws_of(runs)
    reps = sorted({run.cell.rep for run in runs})
    factor = decay(runs) if kind.column == "elbo" else 0.0
    ratio = kind.column == "variance_ratio"
    figure, axes = canvas.grid(
        [f"repetition {place + 1}" for place, _ in enumerate(reps)],
        [kind.axis if count is None else f"L = {count}\n{kind.axis}" for count in draws],
        share_y="all",
    )
    if ratio:
        canvas.log_scale(axes[0, 0], [run.column("variance_ratio") for run in runs])
    shown: set[str] = set()
    for place, rep in enumerate(reps):
        column = [run for run in runs if run.cell.rep == rep]
        for row, count in enumerate(draws):
            axis, here = axes[row, place], [run for run in column if has_draws(run.cell, count)]
            if row:
                # A row with draws of its own is in the first row of panels only.
                here = [run for run in here if run.cell.draws == count]
            lines = [(run.cell.label, curve([run], kind.column, factor)) for run in here]
            known = {label: one for label, one in lines if one is not None}
            shown |= known.keys()
            end = canvas.last_x(known.values(), "step")
            for label in (label for label in looks if label in known):
                canvas.line(axis, known[label], "step", "median", looks[label], end=end)
            canvas.finish_axis(axis, "step" if row == len(draws) - 1 else None)
            if not known:
                canvas.nothing(axis)
    if limits := _limits(runs, kind, factor):
        axes[0, 0].set_ylim(*limits)
    note = f"moving average with factor {factor:g}" if factor else "not smoothed"
    drawn = [run for run in runs if run.cell.label in shown]
    canvas.legend(figure, looks, shown, f"{note}; {repetitions_told(drawn)}")
    return figure


def _limits(runs: Sequence[Record], kind: Kind, factor: float) -> tuple[float, float] | None:
    if kind.column == "variance_ratio" or kind.early:
        return None
    lines = [curve([run], kind.column, factor) for run in runs]
    middles = [one.for_limits("median") for one in lines if one is not None]
    if kind.column == "elbo":
        return late_limits(middles)
    late = np.concatenate([values[len(values) // 2 :] for values in middles])
    return float(np.min(late)) - CLOSE, max(float(np.max(values)) for values in middles) + CLOSE / 3
