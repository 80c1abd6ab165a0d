"""Family and method of a fit from the command's options, and the Python code that makes the same."""

import inspect
from pathlib import Path
from typing import Any

import jax
import optax
from jaxtyping import Array, Key

from ..._util.checks import lookup
from ...estimators import AbstractEstimator
from ...estimators import estimator as by_name
from ...families import ANY_FAMILY, AbstractFamily, named
from ...families import REGISTRY as FAMILIES
from ...methods import OTHER_NAMES, AbstractMethod, Sgd
from ...methods import REGISTRY as METHODS
from ...results.loading import load
from .models import Model

# The family that is fitted if none is named.
FAMILY = "mean-field"
# The options that a method takes, beside those that all of them take.
OPTIONS = {
    "auto": ("estimator", "draws", "steps", "batch_size"),
    "saa": (),
    "bam": (),
    "sgd": ("estimator", "draws", "steps", "batch_size", "learning_rate"),
}


def check(method: str, family: str, given: dict[str, Any]) -> None:
    """Raise a `ValueError` for names that do not exist and options that do not go together."""
    lookup(METHODS, method, "method", OTHER_NAMES)
    check_family(family, given.get("rank"))
    for option in given:
        if option not in (*OPTIONS[method], "rank"):
            flag = "--" + option.replace("_", "-")
            takers = " or ".join(f"--method {m}" for m, known in OPTIONS.items() if option in known)
            raise ValueError(f"--method {method} has no {flag}; leave it out, or use {takers}")
    if "draws" in given and "estimator" not in given:
        raise ValueError("--draws are those of an estimator: name it with --estimator")
    if "draws" in given and given["estimator"] == "auto":
        raise ValueError("--estimator auto chooses its --draws; leave them out, or name an estimator")


def check_family(family: str, rank: int | None, *, any_family: bool = True) -> None:
    """Raise a `ValueError` unless the family exists and has a rank, if one was given."""
    also = (ANY_FAMILY,) if any_family else ()
    if family not in also:
        named(family, *also)
    ranked = [name for name, cls in FAMILIES.items() if "rank" in inspect.signature(cls.init).parameters]
    if rank is not None and family not in ranked:
        raise ValueError(f"--family {family} has no --rank; leave it out, or use {' or '.join(ranked)}")


def family_of(family: str, rank: int | None, model: Model, key: Key[Array, ""]) -> AbstractFamily | str:
    """The name, or with a rank the start that the name would have with the same key."""
    if rank is None:
        return family
    assert model.target.dim is not None
    init: Any = FAMILIES[family].init
    return init(model.target.dim, rank=rank, key=key)


def start_of(path: Path, family: str, rank: int | None) -> AbstractFamily:
    """The q of a saved result; its family takes the place of one that is named."""
    if rank is not None or family != FAMILY:
        raise ValueError("--start has a family of its own; leave --family and --rank out")
    return load(path).q


def family_code(family: str, rank: int | None) -> str:
    """`family_of` in Python."""
    if rank is None:
        return repr(family)
    return f"qg.{FAMILIES[family].__name__}.init(target.dim, rank={rank}, key=key)"


def batch_size_of(method: str, model: Model, given: dict[str, Any]) -> int | None:
    """Rows a step: as given, or as the task has it; all for methods that use all."""
    return given.get("batch_size", model.batch_size) if "batch_size" in OPTIONS[method] else None


def method_of(method: str, model: Model, family: str, given: dict[str, Any]) -> AbstractMethod:
    """The method with the settings that were given."""
    settings: dict[str, Any] = {"steps": given["steps"]} if "steps" in given else {}
    if "estimator" in given:
        settings["estimator"] = _estimator(given)
    if METHODS[method] is Sgd:
        settings["optimizer"] = optax.adam(_rate(model, family, given))
    return METHODS[method](**settings)


def method_code(method: str, model: Model, family: str, given: dict[str, Any]) -> str:
    """`method_of` in Python."""
    settings = [f"steps={given['steps']}"] if "steps" in given else []
    if "estimator" in given:
        name, draws = repr(given["estimator"]), given.get("draws")
        made = name if draws is None else f"qg.estimator({name}, draws={draws})"
        settings.append(f"estimator={made}")
    if METHODS[method] is Sgd:
        settings.append(f"optimizer=optax.adam({_rate(model, family, given)})")
    return f"qg.{METHODS[method].__name__}({', '.join(settings)})"


def precision() -> bool:
    """Whether jax computes in double precision."""
    return bool(jax.config.read("jax_enable_x64"))


def _rate(model: Model, family: str, given: dict[str, Any]) -> float:
    return given.get("learning_rate", model.learning_rate(family))


def _estimator(given: dict[str, Any]) -> AbstractEstimator | str:
    name = given["estimator"]
    if name == "auto":
        return name
    return by_name(name, draws=given["draws"]) if "draws" in given else by_name(name)
