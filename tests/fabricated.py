"""Made-up records for tests of claims, figures and pages. Nothing here was ever run.

The default world behaves as the paper says, so that every claim holds in it; a test bends one trait
to refute one claim.
"""

import dataclasses
import itertools
import json
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from quietgrad.study.records import COLUMNS, Cell, Record
from quietgrad.study.store import Store

PAPER_TASKS = ("a1a", "frisk", "redwine-mini", "redwine")
STAND_INS = ("breast-cancer", "counts", "diabetes-mini", "diabetes")
FAMILIES = ("mean-field", "low-rank", "real-nvp")
LABELS = ("nocv", "zvcv-gd", "quadcv")
VARIANTS = ("zvcv-gd order 2", "zvcv-gd 20 steps", "zvcv-gd to convergence")
STEPS, EVERY = 4000, 50
# What the studies that come with quietgrad name: in the checkout, not in an installed package.
CHAPTER = "reproduction/paper"
ENVIRONMENT = {
    "quietgrad": "0.1.0",
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "dirty": True,
    "python": "3.11.2",
    "jax": "0.10.0",
    "numpy": "2.3.0",
    "cpu": "a made-up processor",
    "cores": 2,
    "backend": "cpu",
    "precision": "float32",
}


@dataclasses.dataclass
class Traits:
    """How one run goes: final ELBO, how fast it gets there, what a step costs, and its noise."""

    final: float
    pace: float
    start: float
    step_seconds: float
    ratio: float
    ratio_late: float
    learned: float
    variance: float
    lppd: float
    lppd_slope: float
    dim: int


Bend = Callable[[Cell, Traits], None]


def traits(cell: Cell) -> Traits:
    """The paper's world."""
    assert cell.draws is not None
    place = _place(cell.task)
    flow, many, quad = cell.family == "real-nvp", cell.draws == 50, cell.label == "quadcv"
    zvcv = cell.label.startswith("zvcv")
    final = (-724.0, -844.0, -1815.0, -151.0)[place] + {"low-rank": 3, "real-nvp": -20}.get(
        cell.family, 0
    )
    final += (0.5, 0.7, 2.0, 6.0)[place] if quad else 0.0
    final += 0.2 if many else 0.0
    ratio = 1.0
    if zvcv:
        final += -3.0 if flow and place == 0 and not many else 0.05
        ratio = ((0.97, 0.75), (0.95, 0.6), (0.995, 0.97), (0.995, 0.97))[place][int(many)]
    ratio_late = (0.4 if flow else 0.05) if quad else ratio
    overhead = {"nocv": (1.0, 1.0), "quadcv": (1.7, 1.3)}.get(cell.label, (1.3, 1.15))[int(many)]
    made = Traits(
        final=final,
        pace=STEPS / 25 * (1.15 if quad else 1.0) * (0.6 if many else 1.0),
        start=3000.0 * (1 + cell.rep),
        step_seconds=1e-4 * (1 + place) * overhead * (1.2 if many else 1.0),
        ratio=ratio,
        ratio_late=ratio_late,
        learned=0.22 if quad else 0.0,
        variance=1e4 / cell.draws,
        lppd=-138.0 if quad else -141.0,
        lppd_slope=0.1,
        dim=(120, 37, 653, 653)[place],
    )
    if cell.label == VARIANTS[0]:
        made.final, made.ratio, made.ratio_late = made.final - 1.0, 1.3, 1.3
    if cell.label in VARIANTS[1:]:
        made.ratio = made.ratio_late = 0.8 if "20" in cell.label else 0.88
    return made


def method_record(cell: Cell) -> Record:
    """A run of a method that ends itself: soon there, and above what steps of a constant size reach."""
    final = traits(dataclasses.replace(cell, label="quadcv", draws=10)).final + 0.6
    # Evaluated at steps and times of its own, which are other ones in every repetition.
    step = np.array([0, 20, 45, 80]) + 3 * cell.rep * np.array([0, 1, 1, 1])
    seed = zlib.crc32(f"{cell.task}/{cell.family}/{cell.rep}".encode())
    columns = {
        "step": step,
        "seconds": 2e-4 * step * (1 + 0.1 * cell.rep),
        "elbo": final - np.array([3000.0, 200.0, 0.4, 0.0]),
        "elbo_error": np.full(4, 0.3),
    }
    outcome = {
        "elbo": final,
        "elbo_error": 0.1,
        "compile_seconds": 2.5,
        "fit_status": "converged",
        "judge": "made-up draws",
        "judge_offset": 0.0,
    }
    return Record(cell, "done", "", columns, outcome, ENVIRONMENT, seed)


def record(cell: Cell, bend: Bend | None = None) -> Record:
    """A finished run of this cell."""
    if cell.ends_itself:
        return method_record(cell)
    assert cell.steps is not None
    its = traits(cell)
    if bend is not None:
        bend(cell, its)
    step = np.arange(0, cell.steps + 1, EVERY)
    seed = zlib.crc32(f"{cell.task}/{cell.family}/{cell.rep}".encode())
    shared, own = (np.random.default_rng(s) for s in (seed, zlib.crc32(cell.name.encode())))
    noise = 0.1 * shared.standard_normal(len(step)) + 0.02 * own.standard_normal(len(step))
    wobble = np.exp(0.03 * own.standard_normal(len(step)))
    gap = its.start * np.exp(-step / its.pace)
    learned = 1 / (1 + np.exp(-(step / cell.steps - its.learned) * 60)) if its.learned else 1.0
    ratio = np.exp(np.log(its.ratio) + (np.log(its.ratio_late) - np.log(its.ratio)) * learned)
    columns = {
        "step": step,
        "seconds": step * its.step_seconds * float(np.exp(0.01 * own.standard_normal())),
        "elbo": its.final - gap + noise,
        "elbo_error": np.full(len(step), 0.3),
        "variance": its.variance * its.ratio * wobble,
        "variance_ratio": np.ones(len(step)) if cell.label == "nocv" else ratio * wobble,
        "variance_ratio_error": np.full(len(step), 0.02),
        "lppd": its.lppd - its.lppd_slope * gap + 0.2 * noise,
    }
    outcome = {
        "elbo": float(columns["elbo"][-1]),
        "elbo_error": 0.3,
        "compile_seconds": 1.5,
        "fit_status": "converged",
        "hint": "the ELBO has stopped rising",
        "dim": its.dim,
    }
    return Record(cell, "done", "", columns, outcome, ENVIRONMENT, seed)


def study(
    *,
    tasks: Iterable[str] = PAPER_TASKS,
    families: Iterable[str] = FAMILIES,
    labels: Iterable[str] = LABELS,
    draws: Iterable[int] = (10, 50),
    methods: Iterable[str] = (),
    reps: int = 4,
    ablations: bool = True,
    steps: int = STEPS,
    bend: Bend | None = None,
) -> list[Record]:
    """A whole grid, with the ablations on the Poisson model; `methods` end themselves."""
    tasks, families = tuple(tasks), tuple(families)
    cells = [
        _cell("main", *place, rep, steps)
        for place in itertools.product(tasks, families, labels, draws)
        for rep in range(reps)
    ]
    cells += [
        Cell(task, family, None, name, None, rep, None, None, method=name)
        for task, family, name in itertools.product(tasks, families, methods)
        for rep in range(reps)
    ]
    poisson = [task for task in tasks if task in ("frisk", "counts")] if ablations else []
    cells += [
        _cell("ablation", task, "mean-field", label, 10, rep, steps)
        for task in poisson
        for label in VARIANTS
        for rep in range(reps)
    ]
    return [record(cell, bend) for cell in cells]


def unfinished(status: str, reason: str, *, task: str = "a1a", label: str = "quadcv") -> Record:
    """A cell that failed, was skipped or timed out."""
    empty = {name: np.array([]) for name in COLUMNS}
    cell = _cell("main", task, "mean-field", label, 10, 99, STEPS)
    return Record(cell, status, reason, empty, {}, ENVIRONMENT, 1)


def write(directory: Path, records: Iterable[Record], missing: Iterable[Record] = ()) -> Path:
    """Store records as a study does; the manifest plans the `missing` ones as well."""
    store, records = Store(directory).create(), list(records)
    for one in records:
        store.write(one)
    about = {
        "format": 1,
        "name": "made-up",
        "created": "2026-01-02T03:04:05+00:00",
        "updated": "2026-01-02T04:05:06+00:00",
        "command": "quietgrad study made-up --reps 2",
        "spec": {"name": "made-up", "title": "A study that was never run", "chapter": CHAPTER},
        "environment": ENVIRONMENT,
        "cells": [{"cell": vars(one.cell), "fingerprint": ""} for one in (*records, *missing)],
    }
    (directory / "manifest.json").write_text(json.dumps(about))
    return directory


def _cell(group: str, task: str, family: str, label: str, draws: int, rep: int, steps: int) -> Cell:
    batch = 32 if task.endswith("-mini") else None
    estimator = label.split()[0]
    return Cell(task, family, estimator, label, draws, rep, steps, 0.01, batch, {}, group)


def _place(task: str) -> int:
    for names in (PAPER_TASKS, STAND_INS):
        if task in names:
            return names.index(task)
    return 1
