"""From a spec to the jobs of its cells."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .._checks import unknown
from .jobs import Evaluation, Job, digest, seed_of
from .records import Cell
from .sources import Sources, sources
from .spec import EstimatorSpec, Grid, Spec


def plan(spec: Spec, only: Sequence[str] = ()) -> list[Job]:
    """The jobs of a study, repetitions of the same programs next to one another.

    `only` narrows it, see `selected`. Names and settings are checked for the whole spec; the data of
    the selected tasks is loaded, so that a missing file is found before anything runs.
    """
    room = sources(None if spec.module is None else spec.module.resolve())
    for grid in spec.grids:
        _check(grid, room)
    chosen = selected(itertools.chain.from_iterable(map(_outline, spec.grids)), only)
    jobs: dict[str, Job] = {}
    for grid, blank in chosen:
        task = room.task(blank.task)
        rate = task.learning_rate(blank.family) if grid.learning_rate is None else grid.learning_rate
        cell = dataclasses.replace(blank, learning_rate=rate, batch_size=task.batch_size)
        if cell.name in jobs:
            raise ValueError(f"the cell {cell.name} is in the study twice; give another group or label")
        jobs[cell.name] = _job(spec, grid, cell)
    return list(jobs.values())


def selected(cells: Iterable[tuple[Grid, Cell]], only: Sequence[str]) -> list[tuple[Grid, Cell]]:
    """The cells that `only` leaves: "key=value" texts, alternatives if a key is repeated.

    Keys are task, family, estimator (its name or label), draws, rep and group.
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
        (grid, cell)
        for grid, cell in left
        if all(_KEYS[key](cell) & values for key, values in wanted.items())
    ]
    if not kept:
        raise ValueError(f"no cell of this study has {' and '.join(only)}")
    return kept


_KEYS = {
    "task": lambda cell: {cell.task},
    "family": lambda cell: {cell.family},
    "estimator": lambda cell: {cell.estimator, cell.label},
    "draws": lambda cell: {str(cell.draws)},
    "rep": lambda cell: {str(cell.rep)},
    "group": lambda cell: {cell.group},
}


def _check(grid: Grid, room: Sources) -> None:
    for task in grid.tasks:
        room.check_task(task)
    for family in grid.families:
        room.family(family)
    for estimator, draws in itertools.product(grid.estimators, grid.draws):
        room.estimator(estimator.name, draws=draws, settings=estimator.settings)


def _outline(grid: Grid) -> Iterable[tuple[Grid, Cell]]:
    """The cells of a grid, without what only the loaded task can tell."""
    axes: tuple[Iterable[Any], ...] = (grid.tasks, grid.families, grid.draws, grid.estimators)
    for task, family, draws, estimator in itertools.product(*axes):
        assert isinstance(estimator, EstimatorSpec)
        for rep in range(grid.reps):
            yield (
                grid,
                Cell(
                    task=task,
                    family=family,
                    estimator=estimator.name,
                    label=estimator.label,
                    draws=draws,
                    rep=rep,
                    steps=grid.steps,
                    learning_rate=0.0,
                    settings=dict(estimator.settings),
                    group=grid.group,
                ),
            )


def _job(spec: Spec, grid: Grid, cell: Cell) -> Job:
    names = [f.name for f in dataclasses.fields(Evaluation)]
    module = None if spec.module is None else Path(spec.module).resolve()
    return Job(
        cell,
        Evaluation(**{name: getattr(grid, name) for name in names}),
        seed_of(cell.task, cell.family, cell.rep),
        timeout=spec.timeout,
        timed=not spec.untimed,
        module=None if module is None else str(module),
        module_digest=None if module is None else digest(module.read_bytes()),
    )
