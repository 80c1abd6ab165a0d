"""The early phase that claim 5 is about: QuadCV minus NoCV at the same step, in nats, by repetition."""

import numpy as np
from matplotlib.figure import Figure

from quietgrad.report import canvas
from quietgrad.report.figures.plan import Plan
from quietgrad.report.names import family_name, styles
from quietgrad.report.stored_study import StoredStudy
from quietgrad.study.records import Record

from .early import PLACES
from .evidence import Evidence, Match, Setting

# Differences below this are drawn on a linear scale, larger ones on a logarithmic one.
LINEAR = 1.0


def early(study: StoredStudy) -> list[Plan]:
    """One figure with the two cases that the paper names."""
    evidence = Evidence(study.main)
    found = [(place, evidence.match(place, "nocv", "quadcv")) for place in PLACES]
    known = [(place, pairs) for place, pairs in found if pairs]
    return [
        Plan(
            "early-quadcv",
            "QuadCV against NoCV early in a run",
            "ELBO of QuadCV minus that of NoCV at the same step, each repetition a line; above zero "
            "QuadCV is ahead. The vertical axis is logarithmic beyond one nat in either direction.",
            None,
            (lambda: _draw(study, evidence, known)) if known else None,
            "" if known else "no NoCV and QuadCV on a1a with mean-field or on frisk with Real NVP",
        )
    ]


def _draw(study: StoredStudy, evidence: Evidence, known: list[tuple[Setting, list[Match]]]) -> Figure:
    look = styles(study.done)["quadcv"]
    titles = [
        f"{evidence.task(place[0])}, {family_name(place[1])}, L = {place[2]}" for place, _ in known
    ]
    figure, axes = canvas.grid(titles, ["QuadCV − NoCV (nats)"], share_y="none")
    for axis, (_, pairs) in zip(axes[0], known, strict=True):
        for plain, quad in pairs:
            steps, gap = _difference(plain, quad)
            axis.plot(steps, gap, color=look.colour, lw=1.1, alpha=0.8)
        axis.axhline(0.0, color="#444444", lw=1)
        axis.set_yscale("symlog", linthresh=LINEAR)
        canvas.finish_symlog(axis)
        axis.set_xlabel(canvas.AXES["step"])
    return figure


def _difference(plain: Record, quad: Record) -> tuple[np.ndarray, np.ndarray]:
    steps, where, other = np.intersect1d(plain.column("step"), quad.column("step"), return_indices=True)
    return steps, quad.column("elbo")[other] - plain.column("elbo")[where]
