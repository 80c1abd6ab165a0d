"""The study's figures, from stored rows only."""

from pathlib import Path
from typing import Any

import numpy as np

from .claims import gradient_ratio, order

SHOWN_RULES = {
    "plain mean of all points": "plain mean of all points",
    "order 1, ends": "order 1, ends of the moves",
    "order 2, ends": "order 2, ends of the moves",
    "the default": "order 2, all points (the default)",
}
SHOWN_SCORES = (
    "UIVI, 5 + 25 states",
    "Stein order 1, states",
    "Stein order 1, all points",
    "Stein order 2, all points",
    "shared importance, 4096 nodes",
)
BAR = 0.25
COLORS = ("#888888", "#0072b2", "#d55e00", "#009e73", "#cc79a7")


def draw(stored: dict[str, list[dict[str, Any]]], folder: Path) -> None:
    """One figure for the gradients of energies, one for scores: errors relative to the plain ones."""
    if stored["gradients"]:
        _gradients(stored["gradients"], folder / "energy-gradients.svg")
    if stored["scores"]:
        _scores(stored["scores"], folder / "implicit-scores.svg")


def _panels(titles: list[str]) -> tuple[Any, Any]:
    import matplotlib as mpl

    mpl.use("svg")
    # The same rows give the same file.
    mpl.rcParams["svg.hashsalt"] = "quietgrad"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(titles), figsize=(4 * len(titles), 3.2), sharey=True, squeeze=False
    )
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set(title=title, yscale="log", xlabel="share of the training, %")
        axis.axhline(1.0, color="black", linewidth=0.8)
        axis.axhline(BAR, color="black", linewidth=0.8, linestyle=":")
    return figure, axes[0]


def _gradients(rows: list[dict[str, Any]], file: Path) -> None:
    least = min(r["chains_over_dim"] for r in rows)
    rows = [r for r in rows if r["chains_over_dim"] == least]
    problems = order(r["problem"] for r in rows)
    figure, axes = _panels([f"{name}, {least}d chains" for name in problems])
    for axis, problem in zip(axes, problems, strict=True):
        own = [r for r in rows if r["problem"] == problem]
        shares = order(r["share"] for r in own)
        for color, (rule, label) in zip(COLORS, SHOWN_RULES.items(), strict=False):
            at = [gradient_ratio([r for r in own if r["share"] == s], rule) for s in shares]
            axis.plot([100 * s for s in shares], at, color=color, marker="o", label=label)
    axes[0].set_ylabel("squared error / plain mean's")
    _save(figure, axes[-1], file)


def _scores(rows: list[dict[str, Any]], file: Path) -> None:
    targets = order(r["target"] for r in rows)
    figure, axes = _panels(targets)
    for axis, target in zip(axes, targets, strict=True):
        own = [r for r in rows if r["target"] == target]
        shares = order(r["share"] for r in own)

        def median(name: str, own: Any = own, shares: Any = shares) -> np.ndarray:
            at = [
                [r["median"] for r in own if (r["estimator"], r["share"]) == (name, share)]
                for share in shares
            ]
            return np.array([np.mean(values) for values in at])

        plain = median("UIVI, 5 + 5 states")
        for color, name in zip(COLORS, SHOWN_SCORES, strict=True):
            axis.plot(
                [100 * s for s in shares], median(name) / plain, color=color, marker="o", label=name
            )
    axes[0].set_ylabel("median squared error / UIVI's")
    _save(figure, axes[-1], file)


def _save(figure: Any, last: Any, file: Path) -> None:
    last.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5))
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})
