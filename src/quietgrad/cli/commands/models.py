"""What the command line fits: a built-in task by name, or what a user's own file has.

That is a target, a PyMC model, a NumPyro model, or a function that makes one of the first two. Functions
get their arguments from the data.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...datasets import tasks
from ...targets import Target
from .arguments import Bound, bind
from .tables import read_table
from .user_file import blamed, load_value

LEARNING_RATE = 0.01


class Model(NamedTuple):
    """A target with what is known about it.

    `code` makes the target in Python: of `found`, what the file has under its name, and `arguments`.
    """

    target: Target
    title: str
    task: tasks.Task | None
    code: str
    file: Path | None = None
    bound: Bound = Bound({}, [], [])

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


def load_model(name: str, data: Path | None = None, given: Sequence[str] = ()) -> Model:
    """The task of that name, or the model that `file.py:name` names, with its data."""
    table = {} if data is None else read_table(data)
    if ":" not in name and not name.endswith(".py"):
        task = tasks.load(name)
        _refuse_data(table, given, f"the task {name} has")
        return Model(task.train, task.title, task, f"qg.tasks.load({name!r}).train")
    found, file = load_value(name)
    if isinstance(found, Target):
        _refuse_data(table, given, f"{name} is a target, which has")
        return Model(found, name, None, "found", file)
    if _is_pymc(found):
        _refuse_data(table, given, f"{name} is a PyMC model, which has")
        return Model(Target.from_pymc(found), name, None, "qg.Target.from_pymc(found)", file)
    if not callable(found):
        raise TypeError(
            f"{name} is {type(found).__name__!r}; make it a quietgrad.Target, for example "
            "quietgrad.Target.from_logdensity(fn, dim=5), a NumPyro model or a PyMC model"
        )
    bound = bind(found, table, given, name)
    target, code = _called(found, bound, name, file)
    return Model(target, name, None, code, file, bound)


def _called(function: Callable[..., Any], bound: Bound, place: str, file: Path) -> tuple[Target, str]:
    """A function makes a target or a PyMC model, or is a NumPyro model: it has sites when it runs."""
    sites: dict[str, Any] = {}
    with blamed(file, f"{place} failed"):
        if "numpyro" in sys.modules:
            from numpyro.handlers import seed, trace

            with trace() as sites, seed(rng_seed=0):
                made = function(**bound.values)
        else:
            made = function(**bound.values)
    if isinstance(made, Target):
        return made, "found(**arguments)"
    if _is_pymc(made):
        return Target.from_pymc(made), "qg.Target.from_pymc(found(**arguments))"
    if not any(site["type"] == "sample" for site in sites.values()):
        raise TypeError(
            f"{place} is a function that returned {type(made).__name__!r} and has no NumPyro sites; it "
            "must be a NumPyro model, or return a quietgrad.Target or a PyMC model"
        )
    if bound.defaults and not any(site.get("is_observed") for site in sites.values()):
        raise ValueError(
            f"{place} observes nothing, with {', '.join(bound.defaults)} at the default; give --data a "
            f"file with a column or array of that name, or --arg {bound.defaults[-1]}=column"
        )
    return Target.from_numpyro(function, **bound.values), "qg.Target.from_numpyro(found, **arguments)"


def _is_pymc(found: Any) -> bool:
    """Without importing PyMC: only a file that has done so can hold one of its models."""
    pymc = sys.modules.get("pymc")
    return pymc is not None and isinstance(found, pymc.Model)


def _refuse_data(table: Any, given: Sequence[str], whose: str) -> None:
    if table or given:
        raise ValueError(f"{whose} its own data; leave out --data and --arg")
