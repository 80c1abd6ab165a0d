"""The plan of a study: from a spec to the jobs of its cells."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from .._util.checks import unknown
from .adapter import make_method
from .jobs import CellJob, EvaluationSchedule, digest, seed_of
from .records import Cell
from .spec import Grid, RowSpec, Spec
from .user_module import Registry, load_registry

Origin = TypeVar("Origin")


def plan(spec: Spec, only: Sequence[str] = ()) -> list[CellJob]:
    """The jobs of a study, repetitions of the same programs next to one another.

    `only` narrows it, see `selected`. Names and settings are checked for the whole spec; the data of
    the selected tasks is loaded, so that a missing file is found before anything runs.
    """
    registry = load_registry(None if spec.module is None else spec.module.resolve())
    for grid in spec.grids:
        _check(grid, registry)
    chosen = selected(itertools.chain.from_iterable(map(_outline, spec.grids)), only)
    jobs: dict[str, CellJob] = {}
    for grid, blank in chosen:
        task = registry.task(blank.task)
        cell = dataclasses.replace(blank, batch_size=task.batch_size)
        if cell.method == "sgd" and cell.learning_rate is None:
            cell = dataclasses.replace(cell, learning_rate=task.learning_rate(cell.family))
        if cell.name in jobs:
            raise ValueError(f"the cell {cell.name} is in the study twice; give another group or label")
        jobs[cell.name] = _job(spec, grid, cell)
    return list(jobs.values())


def selected(cells: Iterable[tuple[Origin, Cell]], only: Sequence[str]) -> list[tuple[Origin, Cell]]:
    """The cells that `only` leaves: "key=value" texts, alternatives if a key is repeated.

    Keys are task, family, method, estimator (its name or label), draws, rep and group.
    """
    left = list(cells)
    wanted: dict[str, set[str]] = {}
    for text in only:
        key, equals, value = text.partition("=")
        if not equals or key not in _KEYS:
            raise ValueError(f"--only takes key=value with a key of {', '.join(_KEYS)}; got {text!r}")
        known = set().union(*(_KEYS[key](cell) for _, cell in left))
        if value not in known:
            raise ValueError(unknown(f"{key} in this study:", value, known))
        wanted.setdefault(key, set()).add(value)
    kept = [
        (origin, cell)
        for origin, cell in left
        if all(_KEYS[key](cell) & values for key, values in wanted.items())
    ]
    if not kept:
        raise ValueError(f"no cell of this study has {' and '.join(only)}")
    return kept


_KEYS: dict[str, Callable[[Cell], set[str]]] = {
    "task": lambda cell: {cell.task},
    "family": lambda cell: {cell.family},
    "method": lambda cell: {cell.method},
    "estimator": lambda cell: {cell.label} | ({cell.estimator} if cell.estimator else set()),
    "draws": lambda cell: set() if cell.draws is None else {str(cell.draws)},
    "rep": lambda cell: {str(cell.rep)},
    "group": lambda cell: {cell.group},
}


def _check(grid: Grid, registry: Registry) -> None:
    for task in grid.tasks:
        registry.check_task(task)
    for family in grid.families:
        registry.family(family)
    for _, cell in _outline(dataclasses.replace(grid, reps=1)):
        rated = dataclasses.replace(cell, learning_rate=cell.learning_rate or 1.0)
        make_method(rated, registry)


def _outline(grid: Grid) -> Iterable[tuple[Grid, Cell]]:
    """The cells of a grid, without what only the loaded task can tell."""
    for task, family in itertools.product(grid.tasks, grid.families):
        blanks = [
            _estimator_row(grid, row, L) for L, row in itertools.product(grid.draws, grid.estimators)
        ]
        blanks += [_method_row(grid, row) for row in grid.methods]
        for blank in blanks:
            for rep in range(grid.reps):
                yield grid, dataclasses.replace(blank, task=task, family=family, rep=rep)


def _estimator_row(grid: Grid, row: RowSpec, draws: int) -> Cell:
    rest = (row.name, row.label, draws, 0, grid.steps, grid.learning_rate)
    return Cell("", "", *rest, settings=dict(row.settings), group=grid.group)


def _method_row(grid: Grid, row: RowSpec) -> Cell:
    steps = rate = None
    if row.name == "sgd":
        steps = row.settings.get("steps", grid.steps)
        rate = row.settings.get("learning_rate", grid.learning_rate)
    rest = (None, row.label, None, 0, steps, rate)
    return Cell("", "", *rest, settings=dict(row.settings), group=grid.group, method=row.name)


def _job(spec: Spec, grid: Grid, cell: Cell) -> CellJob:
    names = [f.name for f in dataclasses.fields(EvaluationSchedule)]
    module = None if spec.module is None else Path(spec.module).resolve()
    return CellJob(
        cell,
        EvaluationSchedule(**{name: getattr(grid, name) for name in names}),
        seed_of(cell.task, cell.family, cell.rep),
        timeout=spec.timeout,
        timed=cell.ends_itself or not spec.untimed,
        module=None if module is None else str(module),
        module_digest=None if module is None else digest(module.read_bytes()),
    )
