"""ZVCV-GD with other settings, each repetition by itself: ELBO above, variance ratio below."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from quietgrad.report import canvas
from quietgrad.report.curves import curve, decay, late_limits
from quietgrad.report.figures.plan import Plan
from quietgrad.report.names import styles
from quietgrad.report.stored_study import StoredStudy
from quietgrad.study.records import Record

from .ablations import BASE, CONVERGED, ORDER_2, STEPS_20


@dataclass(frozen=True)
class Ablation:
    """A comparison of ZVCV-GD as in the paper with some variants."""

    name: str
    title: str
    variants: tuple[str, ...]


ABLATIONS = (
    Ablation("order", "ZVCV-GD of first and second order", (ORDER_2,)),
    Ablation("inner-steps", "ZVCV-GD with 4, 20 and all inner steps", (STEPS_20, CONVERGED)),
)


def ablations(study: StoredStudy) -> list[Plan]:
    """One figure per ablation and task that has it."""
    made = []
    for ablation in ABLATIONS:
        found = [run for run in study.done if run.cell.label in ablation.variants]
        tasks = list(dict.fromkeys(run.cell.task for run in found))
        for task in tasks:
            runs = _runs(study, ablation, task)
            cell = next(run.cell for run in found if run.cell.task == task)
            made.append(
                Plan(
                    f"ablation-{ablation.name}" + (f"-{task}" if len(tasks) > 1 else ""),
                    f"{ablation.title}: {study.task_name(task)}, {cell.family}, L = {cell.draws}",
                    "Each column is one repetition. Top: ELBO, higher is better. Bottom: variance "
                    "ratio to NoCV, lower is better.",
                    None,
                    lambda runs=runs: _draw(study, runs),
                )
            )
        if not tasks:
            wanted = " or ".join(f'"{label}"' for label in ablation.variants)
            reason = f"no finished run of {wanted}"
            made.append(Plan(f"ablation-{ablation.name}", ablation.title, "", None, None, reason))
    return made


def _runs(study: StoredStudy, ablation: Ablation, task: str) -> list[Record]:
    """The variants, and the usual ZVCV-GD from the ablation itself or else from the main grid."""
    variants = [r for r in study.done if r.cell.task == task and r.cell.label in ablation.variants]
    places = {(run.cell.family, run.cell.draws) for run in variants}
    base = [
        r
        for r in study.done
        if r.cell.task == task and r.cell.label == BASE and (r.cell.family, r.cell.draws) in places
    ]
    own = [run for run in base if run.cell.group == variants[0].cell.group]
    return [*(own or base), *variants]


def _draw(study: StoredStudy, runs: Sequence[Record]) -> Figure:
    looks, factor = styles(study.done), decay(runs)
    reps = sorted({run.cell.rep for run in runs})
    titles = [f"repetition {place + 1}" for place, _ in enumerate(reps)]
    rows = ["ELBO (nats)", "variance ratio"]
    figure, axes = canvas.grid(titles, rows, share_y="none")
    for row in axes:
        for axis in row[1:]:
            axis.sharey(row[0])
    canvas.log_scale(axes[1, 0], [run.column("variance_ratio") for run in runs])
    for place, rep in enumerate(reps):
        here = [run for run in runs if run.cell.rep == rep]
        for axis, column, smooth in zip(
            axes[:, place], ("elbo", "variance_ratio"), (factor, 0.0), strict=True
        ):
            lines = [(run.cell.label, curve([run], column, smooth)) for run in here]
            known = {label: one for label, one in lines if one is not None}
            for label in (label for label in looks if label in known):
                canvas.line(axis, known[label], "step", "median", looks[label])
            if column == "variance_ratio":
                axis.axhline(1.0, color="#888888", lw=1)
            canvas.finish_axis(axis, "step" if column == "variance_ratio" else None)
            if not known:
                canvas.nothing(axis)
    lines = [curve([run], "elbo", factor) for run in runs]
    if limits := late_limits([one.median for one in lines if one is not None]):
        axes[0, 0].set_ylim(*limits)
    note = f"ELBO: moving average with factor {factor:g}"
    canvas.legend(figure, looks, {run.cell.label for run in runs}, note)
    return figure
