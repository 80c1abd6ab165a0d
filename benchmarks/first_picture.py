"""The picture of the README: ELBO against seconds for the paper's estimators, quiet and auto.

A race on breast-cancer, mean-field: the same start, the same seconds, judged by the same draws.

Run from the repository: python benchmarks/first_picture.py [--seconds 4]
"""

import argparse
from pathlib import Path

import jax.random as jr
import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from timing import save

import quietgrad as qg

PATH = Path(__file__).parents[1] / "docs" / "images" / "first-fit.svg"
ENTRANTS = {
    "NoCV": "nocv",
    "ZVCV-GD": "zvcv-gd",
    "QuadCV": "quadcv",
    "quiet": "quiet",
    "auto": "auto",
}
# The colours of the report; they can be told apart with a colour vision deficiency.
COLOURS = {
    "NoCV": "#d1372c",
    "ZVCV-GD": "#0072b2",
    "QuadCV": "#009e73",
    "quiet": "#7b3fa0",
    "auto": "#222222",
}
# Nats below and above the mark that are shown, and the first seconds of the logarithmic axis.
BELOW, ABOVE, FIRST = 40, 3, 0.01
SETTINGS = {
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    # Text stays text, and two runs with the same numbers give the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "quietgrad",
}


def draw(result: "qg.racing.RaceResult", title: str) -> Figure:
    """One line for each entrant, its arrival marked."""
    figure = Figure(figsize=(7.6, 3.9), layout="constrained")
    axes = figure.subplots()
    top = result.mark
    axes.axhline(top, color="#888888", lw=0.8, ls=":")
    axes.text(FIRST, top, " best − 1 nat", va="bottom", ha="left", color="#666666", size=9)
    for lane in result.lanes:
        colour, bold = COLOURS[lane.name], lane.name == "auto"
        seconds = np.maximum(lane.seconds, FIRST)
        there = "never" if lane.seconds_to_mark is None else f"{lane.seconds_to_mark:.2g} s"
        axes.plot(
            seconds,
            np.maximum.accumulate(lane.elbos),
            color=colour,
            lw=2.4 if bold else 1.5,
            label=f"{lane.name}: {there}",
        )
        if lane.seconds_to_mark is not None:
            axes.plot(max(lane.seconds_to_mark, FIRST), top, "o", color=colour, ms=6, zorder=5)
    axes.set_xscale("log")
    axes.set_xlim(left=FIRST)
    axes.set_ylim(top - BELOW, top + ABOVE)
    axes.set_xlabel("seconds of optimisation")
    axes.set_ylabel("best ELBO so far, nats")
    axes.set_title(title, loc="left", size=11)
    axes.legend(title="within 1 nat of the best after", loc="lower right", frameon=False)
    return figure


def main() -> None:
    """Race, draw, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    task = qg.tasks.load("breast-cancer")
    result = qg.race(task.train, entrants=ENTRANTS, seconds=given.seconds, key=jr.key(given.seed))
    with mpl.rc_context(SETTINGS):
        figure = draw(result, "Logistic regression (breast-cancer), mean-field Gaussian")
        PATH.parent.mkdir(exist_ok=True)
        figure.savefig(PATH, metadata={"Date": None})
    for lane in result.lanes:
        print(f"{lane.name:8} {lane.seconds_to_mark} s, final ELBO {lane.elbo:.2f}")
    print(result.recommendation())
    save("first_picture", result.rows())


if __name__ == "__main__":
    main()
