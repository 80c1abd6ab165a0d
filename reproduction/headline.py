"""The picture of the README: ELBO on the network against the seconds that a user waits.

Run from the repository: python reproduction/headline.py
Drawn from the stored cells: seconds of compiling in a fresh process (compile_times.json), and then
seconds of optimisation as everywhere in the report.
"""

import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from quietgrad.report.canvas import SETTINGS
from quietgrad.report.curves import Curve, curve
from quietgrad.report.names import STYLES, label_name
from quietgrad.report.stored_study import StoredStudy, load
from quietgrad.study.summary import MARGIN, best_elbo, summarise

HERE = Path(__file__).parent
PATH = HERE.parent / "docs" / "images" / "headline.svg"
TASK, FAMILY = "redwine", "mean-field"
ROWS = {"nocv": 10, "zvcv-gd": 10, "quadcv": 10, "quiet, 2 draws": None, "auto": None}
# Nats below the best that are shown.
BELOW = 22.0
SECONDS = (1.5, 15.0)


def draw(study: StoredStudy, compiling: dict[str, float]) -> Figure:
    """One line for each row, its arrival marked; the shaded range is over repetitions."""
    figure = Figure(figsize=(8.2, 4.1), layout="constrained")
    axis = figure.subplots()
    best = best_elbo(study.done)[TASK, FAMILY]
    axis.axhline(best - MARGIN, color="#888888", lw=0.8, ls=":")
    axis.text(SECONDS[0], best - MARGIN, " best − 1 nat", va="bottom", color="#666666", size=9)
    rows = {
        row.label: row
        for row in summarise(study.main)
        if (row.task, row.family, row.draws) == (TASK, FAMILY, ROWS.get(row.label, -1))
    }
    for label, draws in ROWS.items():
        place = (TASK, FAMILY, label, draws)
        runs = [
            run
            for run in study.main
            if (run.cell.task, run.cell.family, run.cell.label, run.cell.draws) == place
        ]
        one = curve(runs, "elbo")
        assert one is not None
        arrival = rows[label].seconds_to_target
        _line(axis, one, label, compiling[label], arrival, best - MARGIN, rows[label].shortfall)
    axis.set_xscale("log")
    axis.set_xlim(*SECONDS)
    axis.xaxis.set_major_locator(FixedLocator([1.5, 2, 3, 5, 10, 15]))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_ylim(best - BELOW, best + 1.5)
    axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_xlabel("seconds of waiting: compiling in a fresh process, then optimising")
    axis.set_ylabel("ELBO, nats")
    axis.set_title("Bayesian neural network (red wine, 653 parameters), mean-field Gaussian", loc="left")
    axis.legend(title="within 1 nat of the best after", loc="lower right", frameon=False)
    return figure


def _line(
    axis: Axes, one: Curve, label: str, wait: float, arrival: float | None, mark: float, short: str
) -> None:
    style, seconds = STYLES[label], one.seconds + wait
    told = (
        f"{short} of it".replace(" short", " nats short")
        if arrival is None
        else f"{arrival + wait:.2g} s"
    )
    name = f"{label_name(label)}{'' if ROWS[label] is None else ', 10 draws'}"
    bold = 2.6 if label == "auto" else 1.7
    axis.fill_between(seconds, one.low, one.high, color=style.colour, alpha=0.13, lw=0)
    axis.plot(seconds, one.median, color=style.colour, ls=style.dash, lw=bold, label=f"{name}: {told}")
    if one.ends:
        ends = [seconds[-1], SECONDS[1]]
        axis.plot(ends, [one.median[-1]] * 2, color=style.colour, lw=0.8, zorder=1)
        axis.plot(seconds[-1:], one.median[-1:], "s", color=style.colour, ms=5, zorder=4)
    if arrival is not None:
        axis.plot(np.array([arrival + wait]), [mark], "o", color=style.colour, ms=7, zorder=5)


def main() -> None:
    """Draw and write."""
    about = json.loads((HERE / "compile_times.json").read_text(encoding="utf-8"))
    with mpl.rc_context({**SETTINGS, "font.size": 11, "axes.titlesize": 11}):
        draw(load(HERE), about["seconds"]).savefig(PATH, metadata={"Date": None})
    print(PATH.relative_to(HERE.parent))


if __name__ == "__main__":
    main()
