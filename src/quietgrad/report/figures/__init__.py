"""The figures of a report.

A further kind is a file with a function from `StoredStudy` to plans, and a line in `FIGURES`; a study's
own chapter may bring more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl

from ..canvas import SETTINGS, save
from ..stored_study import StoredStudy
from .elbo_iteration import elbo_iteration
from .elbo_time import elbo_time
from .plan import Plan
from .variance_ratio import variance_ratio

FIGURES: list[Callable[[StoredStudy], list[Plan]]] = [
    elbo_time,
    elbo_iteration,
    variance_ratio,
]

__all__ = ["FIGURES", "Drawn", "Plan", "draw_all"]


@dataclass(frozen=True)
class Drawn:
    """A plan and its picture (PNG), which is empty if it was not drawn."""

    plan: Plan
    picture: bytes


def draw_all(
    study: StoredStudy, directory: Path, more: Sequence[Callable[[StoredStudy], list[Plan]]] = ()
) -> list[Drawn]:
    """Draw everything there are rows for into `directory`, as SVG and PNG."""
    directory.mkdir(parents=True, exist_ok=True)
    return [_draw(plan, directory) for figure in (*FIGURES, *more) for plan in figure(study)]


def _draw(plan: Plan, directory: Path) -> Drawn:
    stem = directory / plan.file
    if plan.draw is None:
        # A figure from an earlier report must not outlive its rows.
        for suffix in (".svg", ".png"):
            stem.with_suffix(suffix).unlink(missing_ok=True)
        return Drawn(plan, b"")
    with mpl.rc_context(SETTINGS):
        return Drawn(plan, save(plan.draw(), stem))
