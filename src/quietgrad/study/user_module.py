"""A study's tasks, families and estimators by name: the package's, and those of the user's Python file.

The file may define `TASKS`, a dict from names to functions that return a
`quietgrad.datasets.tasks.Task` or a bare `Target` of known dim, `FAMILIES`, a dict from names to
subclasses of `AbstractFamily`, and `ESTIMATORS`, a dict from names to functions of `draws` and settings.
"""

import functools
import importlib.util
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._util.checks import lookup
from ..datasets import tasks
from ..datasets.tasks import LEARNING_RATE, Task
from ..estimators import REGISTRY as ESTIMATORS
from ..estimators import AbstractEstimator, estimator
from ..families import REGISTRY as FAMILIES
from ..families import AbstractFamily, named
from ..targets import Target

_LOADING = threading.Lock()


@dataclass(frozen=True, eq=False)
class Registry:
    """Tasks, families and estimators by name. Tasks are loaded once, so that compiled code is shared."""

    own_tasks: Mapping[str, Callable[[], Any]]
    own_estimators: Mapping[str, Callable[..., Any]]
    own_families: Mapping[str, Callable[..., Any]]

    @functools.cached_property
    def _loaded(self) -> dict[str, Task]:
        return {}

    def check_task(self, name: str) -> None:
        """Raise a `ValueError` unless there is a task of this name; nothing is loaded."""
        lookup({**tasks.REGISTRY, **self.own_tasks}, name, "task")

    def task(self, name: str) -> Task:
        """The task of this name, with its data."""
        self.check_task(name)
        with _LOADING:
            if name not in self._loaded:
                own = self.own_tasks.get(name)
                self._loaded[name] = tasks.load(name) if own is None else _as_task(name, own())
            return self._loaded[name]

    def family(self, name: str) -> type[AbstractFamily]:
        """The variational family of this name."""
        own = self.own_families.get(name)
        if own is None:
            return named(name, *self.own_families)
        if not isinstance(own, type) or not issubclass(own, AbstractFamily):
            raise TypeError(f"FAMILIES[{name!r}] must be a class of AbstractFamily; got {own!r}")
        return own

    def estimator(self, name: str, **settings: Any) -> AbstractEstimator:
        """The estimator of this name with these settings, its draws among them."""
        own = self.own_estimators.get(name)
        if own is None:
            lookup({**ESTIMATORS, **self.own_estimators}, name, "estimator")
            return estimator(name, **settings)
        made = own(**settings)
        if not isinstance(made, AbstractEstimator):
            raise TypeError(f"ESTIMATORS[{name!r}] must return an estimator; got {type(made).__name__}")
        return made


@functools.lru_cache
def load_registry(module: Path | None) -> Registry:
    """The package's tasks, families and estimators, and those of a user's file."""
    if module is None:
        return Registry({}, {}, {})
    loaded = _import(module)
    own_tasks = _named(loaded, "TASKS", module, tasks.REGISTRY)
    own_estimators = _named(loaded, "ESTIMATORS", module, ESTIMATORS)
    own_families = _named(loaded, "FAMILIES", module, FAMILIES)
    if not (own_tasks or own_estimators or own_families):
        raise ValueError(f"{module.name} defines none of TASKS, ESTIMATORS and FAMILIES")
    return Registry(own_tasks, own_estimators, own_families)


def _import(path: Path) -> Any:
    name = f"quietgrad_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"importing {path.name} failed: {type(error).__name__}: {error}") from error
    return module


def _named(
    module: Any, name: str, path: Path, taken: Mapping[str, Any]
) -> dict[str, Callable[..., Any]]:
    found = getattr(module, name, {})
    if not isinstance(found, Mapping) or not all(
        isinstance(key, str) and callable(value) for key, value in found.items()
    ):
        raise TypeError(f"{name} in {path.name} must be a dict from names to functions")
    for key in found:
        if key in taken:
            raise ValueError(f"{name} in {path.name} uses the name {key!r}, which quietgrad has already")
    return dict(found)


def _as_task(name: str, made: Any) -> Task:
    if isinstance(made, Task):
        return made
    if isinstance(made, Target) and made.dim is not None:
        return Task(
            name,
            title=name,
            train=made,
            test=None,
            dim=made.dim,
            batch_size=None,
            simulated=False,
            real_nvp_rate=LEARNING_RATE,
        )
    problem = "a Target without dim" if isinstance(made, Target) else type(made).__name__
    raise TypeError(
        f"TASKS[{name!r}] must return a Task (qg.tasks.Task) or a Target with dim; got {problem}"
    )
