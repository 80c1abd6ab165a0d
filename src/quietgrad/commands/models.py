"""What the command line fits: a built-in task by name, or a target in a user's own file."""

import importlib.util
import sys
from pathlib import Path
from typing import Any, NamedTuple

from .. import tasks
from ..targets import Target

LEARNING_RATE = 0.01


class Model(NamedTuple):
    """A target with what is known about it."""

    target: Target
    title: str
    task: tasks.Task | None

    def check_dim(self) -> None:
        """Raise a `ValueError` unless the target says how long its points are."""
        if self.target.dim is None:
            raise ValueError("the target does not say its dim: make it with dim=... or example=...")

    @property
    def batch_size(self) -> int | None:
        """Rows a step, if the task has its own choice."""
        return None if self.task is None else self.task.batch_size

    def learning_rate(self, family: str) -> float:
        """Adam's: the paper's for a task and family, `LEARNING_RATE` for other models."""
        return LEARNING_RATE if self.task is None else self.task.learning_rate(family)


def load_model(name: str) -> Model:
    """The task of that name, or the target that `file.py:name` names."""
    if ":" not in name and not name.endswith(".py"):
        task = tasks.load(name)
        return Model(task.train, task.title, task)
    return Model(load_target(name), name, None)


def load_target(place: str) -> Target:
    """The target named by `file.py:name`: a target, or a function that makes one."""
    file, _, name = place.rpartition(":")
    path = Path(file)
    if not file or not name or not path.is_file():
        raise ValueError(
            f"{place!r} does not name a target: give a Python file and a name in it, "
            "as in my_model.py:target"
        )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    if not hasattr(module, name):
        names = [n for n, value in vars(module).items() if isinstance(value, Target)]
        found = f"; targets there: {', '.join(names)}" if names else ""
        raise ValueError(f"{path.name} has no {name!r}{found}")
    found_value: Any = getattr(module, name)
    if callable(found_value) and not isinstance(found_value, Target):
        found_value = found_value()
    if not isinstance(found_value, Target):
        raise TypeError(
            f"{place} is a {type(found_value).__name__}; make it a quietgrad.Target, for example "
            "quietgrad.Target.from_logdensity(fn, dim=5)"
        )
    return found_value
