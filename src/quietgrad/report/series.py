"""What the interactive panels need, small enough to be put into the page."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..study.records import Record
from .curves import Curve, curve, decay, late_limits
from .names import family_name, label_name, styles
from .stored_study import StoredStudy

POINTS = 200

# Task, family, draws (None for methods) and label.
Place = tuple[str, str, int | None, str]


def panel_data(study: StoredStudy, statistic: str) -> dict[str, Any]:
    """Curves of the main grid by task, family, draws and label, and how to draw them."""
    factor = decay(study.main)
    looks = styles(study.main)
    groups: dict[Place, list[Record]] = {}
    for run in study.main:
        cell = run.cell
        groups.setdefault((cell.task, cell.family, cell.draws, cell.label), []).append(run)
    elbo = {key: curve(runs, "elbo", factor) for key, runs in groups.items()}
    ratio = {key: curve(runs, "variance_ratio") for key, runs in groups.items()}
    return {
        "series": [
            {
                **dict(zip(("task", "family", "draws", "label"), key, strict=True)),
                "ends": any(run.cell.ends_itself for run in groups[key]),
                "elbo": _columns(elbo[key]),
                "ratio": _columns(ratio[key]),
            }
            for key in sorted(groups, key=lambda key: list(looks).index(key[3]))
        ],
        "limits": _limits(elbo),
        "tasks": {task: study.task_name(task) for task in study.tasks()},
        "families": {family: family_name(family) for family in study.families()},
        "draws": study.draws(),
        "labels": {
            label: {"name": label_name(label), "colour": style.colour, "dash": style.plotly}
            for label, style in looks.items()
        },
        "statistic": statistic,
        "timed": study.timed,
        "smoothing": factor,
    }


def _limits(curves: dict[Place, Curve | None]) -> dict[str, list[float]]:
    """By "task|family" of the places in `tasks` and `families`: the axis that shows the end."""
    middles: dict[tuple[str, str], list[np.ndarray]] = {}
    for (task, family, _, _), one in curves.items():
        if one is not None:
            middles.setdefault((task, family), []).append(one.for_limits("median"))
    limits = {f"{task}|{family}": late_limits(lines) for (task, family), lines in middles.items()}
    return {key: _short(list(pair)) for key, pair in limits.items() if pair is not None}


def _columns(one: Curve | None) -> dict[str, list[float | None]] | None:
    if one is None:
        return None
    few = one.thinned(POINTS)
    names = ("step", "seconds", "median", "mean", "low", "high")
    return {name: _short(getattr(few, name)) for name in names}


def _short(values: Sequence[float] | np.ndarray) -> list[Any]:
    """Seven digits are enough for a plot; what is not finite becomes null."""
    return [float(f"{value:.7g}") if math.isfinite(value) else None for value in values]
