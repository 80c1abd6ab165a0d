"""`load`: a result that was saved, in another process or on another machine, without its model."""

import os
from typing import Any

from jaxtyping import PyTree

from ..families import AbstractFamily
from ..targets.stored import stored_target
from .refined import Refined
from .result import FitResult, Remembered
from .saving import read_result


def load(
    path: str | os.PathLike[str],
    *,
    family: AbstractFamily | None = None,
    hyperparameters: PyTree = None,
) -> FitResult:
    """Read a result that `FitResult.save` has written.

    Draws (`sample`, `to_arviz`, `summary`, `plot`), the density `q.log_prob`, the stored `diagnosis` and
    the history need no model. What does says so: `loaded.with_target(target)` is the same result with
    its model. `fit(target, loaded.q, key=key)` goes on from it, with the same model or another one.

    Numbers are those that were saved, bit for bit. Classes of your own in `q` (a family, a base) must
    have been imported. A file of another program, one that was cut short or changed, and one of a later
    version of the format are a `ValueError`.

    Args:
        path: the file.
        family: a family like the one that was saved, with any numbers in it, for one that holds
            functions, such as `FlowjaxFlow.of(flow)`: a file has none. Without it `q` draws and has its
            density by programs, and cannot be fitted; one that holds no functions but the target's (a
            hierarchy with nested locals) is made again from a target that `with_target` or `fit` gets.
        hyperparameters: the same for fitted hyperparameters that hold functions.
    """
    given: dict[str, Any] = {"family": family, "hyperparameters": hyperparameters}
    templates = {name: value for name, value in given.items() if value is not None}
    fields, about, remembered = read_result(path, templates)
    kept = Remembered()
    kept.diagnosis, kept.probes = remembered["diagnosis"], remembered["probes"]
    kept.made = remembered["made"]
    target, refined = stored_target(about, fields["q"].dim), fields.pop("refined")
    refined = None if refined is None else Refined(target=target, **refined)
    return FitResult(**fields, target=target, refined=refined, remembered=kept)
