"""The study's figures, from stored rows only."""

from pathlib import Path
from typing import Any

import numpy as np

from .claims import (
    LIKELIHOOD_CONTENDERS,
    SERIES,
    dimensions,
    distance,
    gradient_ratio,
    likelihoods,
    order,
    score_ratio,
)

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
SHOWN_BY_DIMENSION = (
    "Stein order 1, all points",
    "Stein order 1, 256 shared nodes",
    "shared importance, 256 nodes",
    "shared importance, 4096 nodes",
)
BAR = 0.25
# The best fit of all is drawn this far below itself.
LEAST_GAP = 1e-5
# Distances beyond this many deviations are not shown.
FARTHEST = 1.5
COLORS = ("#888888", "#0072b2", "#d55e00", "#009e73", "#cc79a7")
SHOWN_METHODS = dict(zip(("uivi", "uivi-stein", "sivi", "particles", "ksivi"), COLORS, strict=True))


def draw(stored: dict[str, list[dict[str, Any]]], folder: Path) -> None:
    """Errors of gradients and scores relative to the plain ones; distances; likelihoods."""
    if stored["gradients"]:
        _gradients(stored["gradients"], folder / "energy-gradients.svg")
    if stored["scores"]:
        _scores(stored["scores"], folder / "implicit-scores.svg")
        if len(dimensions(stored["scores"])) > 1:
            _by_dimension(stored["scores"], folder / "implicit-dimensions.svg")
    if stored["distances"]:
        _distances(stored["distances"], folder / "implicit-distances.svg")
    if stored["energies"]:
        _likelihoods(stored["energies"], folder / "energy-likelihoods.svg")


def _plots() -> Any:
    """matplotlib's pyplot; the same rows give the same file."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "quietgrad"
    import matplotlib.pyplot as plt

    return plt


def _panels(titles: list[str], label: str = "share of the training, %") -> tuple[Any, Any]:
    figure, axes = _plots().subplots(
        1, len(titles), figsize=(4 * len(titles), 3.2), sharey=True, squeeze=False
    )
    for axis, title in zip(axes[0], titles, strict=True):
        axis.set(title=title, yscale="log", xlabel=label)
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


def _by_dimension(rows: list[dict[str, Any]], file: Path) -> None:
    series = dimensions(rows)
    figure, axes = _panels(["waveform"], "dimension of eps")
    for color, name in zip(COLORS[1:], SHOWN_BY_DIMENSION, strict=True):
        at = [score_ratio(own, name) for own in series.values()]
        axes[0].plot(list(series), at, color=color, marker="o", label=name)
    axes[0].set_ylabel("median squared error / UIVI's")
    _save(figure, axes[0], file)


def _distances(rows: list[dict[str, Any]], file: Path) -> None:
    methods = [m for m in order(r["method"] for r in rows) if m in SHOWN_METHODS]
    targets = order(r["target"] for r in rows if r["method"] in methods)
    across = 3
    figure, axes = _plots().subplots(
        -(-len(targets) // across), across, figsize=(12, 6.2), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(targets) :]:
        axis.set_visible(False)
    for axis, target in zip(axes.flat, targets, strict=False):
        axis.set(title=target, yscale="log", xlabel="processor seconds")
        for method in methods:
            own = [r for r in rows if (r["target"], r["method"]) == (target, method)]
            moments = sorted({(r["seconds"], r["share"]) for r in own})
            at = np.array([distance(own, target, method, share=share) for _, share in moments])
            if len(at):
                seconds = [second for second, _ in moments]
                style = SHOWN_METHODS[method]
                axis.errorbar(seconds, at[:, 0], at[:, 1], color=style, marker="o", label=method)
        floor = distance(rows, target, "reference")
        if floor is not None:
            axis.axhline(floor[0], color="black", linewidth=0.8, linestyle=":", label="reference")
        # What diverged is above the panel.
        axis.set_ylim(top=min(axis.get_ylim()[1], FARTHEST))
    for row in axes:
        row[0].set_ylabel("sliced Wasserstein distance")
    axes[0][-1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.02, 1.0))
    figure.savefig(file, metadata={"Date": None})


def _likelihoods(rows: list[dict[str, Any]], file: Path) -> None:
    """Each seed's likelihood of the fitted rows below the best of all, by problem and method.

    Of the methods of the bar, and where log Z is no estimate; the tables have the others.
    """
    estimated = {r["problem"] for r in rows if r.get("log_z_error")}
    methods = [m for m in ("stein", *LIKELIHOOD_CONTENDERS) if any(r["method"] == m for r in rows)]
    rows = [r for r in rows if r["method"] in methods and r["problem"] not in estimated]
    problems = order(r["problem"] for r in rows)
    figure, axes = _panels(problems, "")
    for axis, problem in zip(axes, problems, strict=True):
        for line in list(axis.lines):
            line.remove()
        best = max(r["train"] for r in rows if r["problem"] == problem)
        for place, (color, method) in enumerate(zip(COLORS[1 : 1 + len(methods)], methods, strict=True)):
            below = [max(best - v, LEAST_GAP) for v in likelihoods(rows, problem, method, "train")]
            axis.scatter(np.full(len(below), place), below, color=color, s=18)
        axis.set_xticks(range(len(methods)), methods)
        axis.set_xlim(-0.5, len(methods) - 0.5)
    axes[0].set_ylabel("nats a row below the best fit")
    figure.savefig(file, bbox_inches="tight", metadata={"Date": None})


def _scores(rows: list[dict[str, Any]], file: Path) -> None:
    targets = [t for t in order(r["target"] for r in rows) if not t.startswith(SERIES)]
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
