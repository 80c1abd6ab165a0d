"""The layout of the paper's main figures: a column for each task, a row for each number of draws."""

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...study.clock import Clock, clock_of
from ...study.records import Record
from .. import canvas
from ..curves import STATISTICS, Curve, curve, decay, late_limits
from ..names import BASELINES, FAMILIES, family_name, in_order, label_name, styles
from ..numbers import listed
from ..stored_study import StoredStudy, draws_of, has_draws
from .plan import Plan

PAPER_FAMILIES = ("mean-field", "real-nvp", "low-rank")

# With more rows than this in a panel only the baselines have a shaded range.
FEW = 5

Panel = Callable[[Axes, dict[str, Curve], str], None]


def plans(
    study: StoredStudy,
    kind: str,
    title: str,
    caption: str,
    draw: Callable[[str, str], Figure],
    column: str,
    *,
    timed: bool = False,
) -> list[Plan]:
    """A plan for each family, in the study or in the paper, with medians and with means.

    `timed` figures need runs that have a clock.
    """
    made = []
    for family in in_order([*PAPER_FAMILIES, *study.families()], FAMILIES):
        runs = [run for run in study.main if run.cell.family == family]
        reason = f"no finished run with {family}"
        if runs and curve(runs, column) is None:
            reason = f"{column} was not evaluated in the runs with {family}"
        drawable = curve(runs, column) is not None
        if drawable and timed and all(clock_of(run) is Clock.NONE for run in runs):
            drawable, reason = False, "the runs were not timed, and there was no timing pass yet"
        few = drawable and max(run.cell.rep for run in runs) - min(r.cell.rep for r in runs) < 2
        for statistic in STATISTICS:
            if few and statistic == "mean":
                drawable, reason = False, "the same as with medians: there are at most two repetitions"
            made.append(
                Plan(
                    f"{kind}-{family}-{statistic}",
                    f"{title}, {family_name(family)} ({statistic}s)",
                    caption.format(statistic=statistic),
                    statistic,
                    (lambda f=family, s=statistic: draw(f, s)) if drawable else None,
                    "" if drawable else reason,
                )
            )
    return made


def elbo_grid(study: StoredStudy, family: str, x: str, statistic: str) -> Figure:
    """The ELBO against iterations or seconds."""
    factor = decay(study.main)
    limits, known = {}, {}
    for task in study.tasks():
        runs = [r for r in study.main if (r.cell.family, r.cell.task) == (family, task)]
        known[task] = list(_curves(runs, "elbo", factor).values())
        limits[task] = late_limits(
            [one.for_limits(statistic) for one in known[task]], [one.high for one in known[task]]
        )

    def panel(axis: Axes, curves: dict[str, Curve], task: str) -> None:
        looks, end = styles(study.done), canvas.last_x(known[task], x)
        few = len(curves) <= FEW
        for label, one in curves.items():
            band = few or label in BASELINES
            canvas.line(axis, one, x, statistic, looks[label], end=end, band=band)
        if x == "seconds":
            # The same in both rows of a column, so that what draws cost can be seen.
            canvas.time_axis(axis, known[task])
        if limits[task] is not None:
            axis.set_ylim(*limits[task])

    def note(drawn: Sequence[Record]) -> str:
        told = f"{statistic} over repetitions; shaded: range"
        if crowded(drawn):
            told += f" (with more than {FEW} rows in a panel: of {'/'.join(map(label_name, BASELINES))})"
        told += f"; moving average with factor {factor:g}"
        if x == "seconds" and study.timing is not None:
            told += "\nseconds: steps × the time of a step, measured apart"
            own = dict.fromkeys(label_name(r.cell.label) for r in drawn if r.cell.ends_itself)
            ran = "they" if len(own) > 1 else "it"
            told += f"; {listed([*own])} timed as {ran} ran" if own else ""
        return told

    return _grid(study, family, "ELBO (nats)", x, panel, "elbo", factor, note)


def ratio_grid(study: StoredStudy, family: str, statistic: str) -> Figure:
    """The variance ratio against iterations."""
    looks, middles = styles(study.done), {}
    for task in study.tasks():
        runs = [r for r in study.main if (r.cell.family, r.cell.task) == (family, task)]
        found = _curves(runs, "variance_ratio", 0.0).values()
        middles[task] = [one.middle(statistic) for one in found]

    def panel(axis: Axes, curves: dict[str, Curve], task: str) -> None:
        # The axes of a column are shared, so all of them must be of a kind.
        canvas.log_scale(axis, middles[task])
        for label, one in curves.items():
            if label != "nocv":
                canvas.line(axis, one, "step", statistic, looks[label], band=False)
        plain = looks.get("nocv")
        axis.axhline(1.0, color=plain.colour if plain else "#444444", lw=1.2)

    def note(_: Sequence[Record]) -> str:
        return f"{statistic} over repetitions; NoCV is 1 by definition"

    return _grid(study, family, "variance ratio", "step", panel, "variance_ratio", 0.0, note)


def _grid(
    study: StoredStudy,
    family: str,
    what: str,
    x: str,
    panel: Panel,
    column: str,
    factor: float,
    note: Callable[[Sequence[Record]], str],
) -> Figure:
    runs = [run for run in study.main if run.cell.family == family]
    if x == "step":
        runs = comparable(runs)
    tasks = in_order((run.cell.task for run in runs), study.tasks())
    if x == "seconds":
        # Runs beside others have no seconds until there was a timing pass.
        runs = [run for run in runs if clock_of(run) is not Clock.NONE]
    draws = draws_of(runs)
    rows = [what if count is None else f"L = {count}\n{what}" for count in draws]
    figure, axes = canvas.grid([study.task_name(task) for task in tasks], rows)
    shown: set[str] = {"nocv"} if column == "variance_ratio" else set()
    for row, count in enumerate(draws):
        for place, task in enumerate(tasks):
            axis = axes[row, place]
            here = [r for r in runs if r.cell.task == task and has_draws(r.cell, count)]
            if row:
                # Steps with draws of their own are in no further row; what ends itself is a reference.
                here = [r for r in here if r.cell.draws == count or r.cell.ends_itself]
            curves = {
                label: one
                for label in styles(here)
                if (one := curve([r for r in here if r.cell.label == label], column, factor))
            }
            if count is not None and not any(run.cell.draws == count for run in here):
                # Methods alone say nothing about this number of draws.
                curves = {}
            if not curves:
                canvas.nothing(axis, "no finished run" if count is None else f"not run with L = {count}")
                continue
            shown |= curves.keys()
            panel(axis, curves, task)
            # The last panel of a column that shows anything names the axis.
            below = {r.cell.draws for r in runs if r.cell.task == task} & set(draws[row + 1 :])
            named = "joined" if x == "seconds" and study.timing is not None else x
            canvas.finish_axis(axis, None if below else named)
    drawn = [run for run in runs if run.cell.label in shown]
    canvas.legend(figure, styles(study.done), shown, f"{note(drawn)}\n{repetitions_told(drawn)}")
    return figure


def crowded(runs: Sequence[Record]) -> bool:
    """Whether some panel has more rows than `FEW`."""
    rows: dict[tuple[str, int | None], set[str]] = {}
    for run in runs:
        for count in draws_of(runs) if run.cell.draws is None else [run.cell.draws]:
            rows.setdefault((run.cell.task, count), set()).add(run.cell.label)
    return max(map(len, rows.values()), default=0) > FEW


def repetitions_told(runs: Sequence[Record]) -> str:
    """How many repetitions the rows have: one number, or the rows that have fewer."""
    reps: dict[str, int] = {}
    for run in runs:
        label = run.cell.label
        reps[label] = max(reps.get(label, 0), run.cell.rep + 1)
    most = max(reps.values(), default=0)
    told = [f"repetitions: {most}"]
    for count in sorted(set(reps.values()) - {most}):
        names = (label_name(label) for label, own in reps.items() if own == count)
        told.append(f"{count} of {' / '.join(names)}")
    return "; ".join(told)


def comparable(runs: Sequence[Record]) -> list[Record]:
    """Runs whose steps can be compared: without methods that end themselves, if there are others."""
    return [run for run in runs if not run.cell.ends_itself] or list(runs)


def _curves(runs: list[Record], column: str, factor: float) -> dict[tuple[str, int | None], Curve]:
    keys = dict.fromkeys((run.cell.label, run.cell.draws) for run in runs)
    found = {
        key: curve([r for r in runs if (r.cell.label, r.cell.draws) == key], column, factor)
        for key in keys
    }
    return {key: one for key, one in found.items() if one is not None}
