"""A study as it is meant: grids of cells, checked and frozen. `read_spec` makes one from TOML."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .._util.checks import whole


@dataclass(frozen=True)
class RowSpec:
    """An estimator or a method by its registered name; `label` is its name in tables and figures."""

    name: str
    label: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Grid:
    """One block of cells: tasks x families x (estimators x draws + methods), each repeated `reps` times.

    Rows of `estimators` are Adam at `learning_rate` (the task's own if None) for `steps` steps. Rows of
    `methods` take their settings instead; "sgd" among them has `steps` and `learning_rate` of the grid
    unless its settings say otherwise.

    Every `evaluate_every` steps the ELBO is evaluated with `elbo_draws` draws (a method that ends itself
    is evaluated when it asks). Every `variance_every` steps (a multiple of it; 0 is never) the variance
    of `variance_repeats` gradients is compared with NoCV's from the same draws, and every `lppd_every`
    steps the test rows' lppd is computed from `lppd_draws` draws where the task has any.
    `light_evaluation` compiles less for the variance and takes longer to run it: for studies of many
    short cells.
    """

    tasks: tuple[str, ...]
    families: tuple[str, ...]
    estimators: tuple[RowSpec, ...] = ()
    methods: tuple[RowSpec, ...] = ()
    draws: tuple[int, ...] = (10,)
    group: str = "main"
    reps: int = 1
    steps: int = 1000
    learning_rate: float | None = None
    evaluate_every: int = 50
    elbo_draws: int = 500
    variance_every: int = 0
    variance_repeats: int = 100
    lppd_every: int = 0
    lppd_draws: int = 1000
    light_evaluation: bool = False


@dataclass(frozen=True)
class Spec:
    """A study. `timeout` is wall-clock seconds for a cell.

    Rows of "sgd" in an `untimed` study may run side by side; their seconds mean nothing, and come from a
    timing pass (`quietgrad study time`) instead. Methods whose steps vary in cost are timed in any case.
    `chapter` is the folder of a package that its report takes claims and figures from.
    """

    name: str
    title: str
    grids: tuple[Grid, ...]
    description: str = ""
    timeout: float = 3600.0
    untimed: bool = False
    module: Path | None = None
    chapter: Path | None = None

    def override(self, *, reps: int | None = None, steps: int | None = None) -> "Spec":
        """The same study with other numbers of repetitions or steps in every grid."""
        grids = self.grids
        if reps is not None:
            grids = tuple(replace(g, reps=whole(reps, "reps", least=1)) for g in grids)
        if steps is not None:
            grids = tuple(replace(g, steps=whole(steps, "steps", least=1)) for g in grids)
        return replace(self, grids=grids)
