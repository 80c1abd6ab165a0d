"""The estimators by name."""

import inspect
from collections.abc import Callable
from typing import Any

from .._util.checks import described, lookup, unknown
from . import presets
from .estimator import AbstractEstimator
from .pathwise import Pathwise
from .weights import Uniform

REGISTRY: dict[str, Callable[..., AbstractEstimator]] = {
    "nocv": presets.nocv,
    "stl": presets.stl,
    "antithetic": presets.antithetic,
    "rqmc": presets.rqmc,
    "quiet": presets.quiet,
    "quiet-stein": presets.quiet_stein,
    "zvcv-gd": presets.zvcv_gd,
    "zvcv": presets.zvcv,
    "quadcv": presets.quadcv,
    "quadcv-fast": presets.quadcv_fast,
    "taylor": presets.taylor,
    "joint": presets.joint,
    "ensemble": presets.ensemble,
    "score": presets.score,
    "score-loo": presets.score_loo,
    "score-stein": presets.score_stein,
    "sivi": presets.sivi,
    "uivi": presets.uivi,
    "uivi-stein": presets.uivi_stein,
    "ksivi": presets.ksivi,
    "zvcv-gd-literal": presets.zvcv_gd_literal,
    "quadcv-literal": presets.quadcv_literal,
}


def resolve(given: AbstractEstimator | str) -> AbstractEstimator:
    """A registered name becomes its estimator with default settings; estimators pass through."""
    made = estimator(given) if isinstance(given, str) else given
    if not isinstance(made, AbstractEstimator):
        raise TypeError(
            f"estimator must be one of the names {', '.join(sorted(REGISTRY))} or an instance of "
            f"AbstractEstimator; got {described(given)}"
        )
    return made


def estimator(name: str, **settings: Any) -> AbstractEstimator:
    """Make a registered estimator, e.g. `estimator("nocv", draws=50)`."""
    make = lookup(REGISTRY, name, "estimator")
    accepted = inspect.signature(make).parameters
    for setting in settings:
        if setting not in accepted:
            raise ValueError(unknown(f"setting of estimator {name!r}:", setting, accepted))
    return make(**settings)


def name_of(estimator: AbstractEstimator) -> str:
    """The parts of a pathwise estimator and its draws; the class of another."""
    if not isinstance(estimator, Pathwise):
        return type(estimator).__name__
    parts = [estimator.sampler, estimator.entropy]
    parts += [] if isinstance(estimator.weights, Uniform) else [estimator.weights]
    parts += [] if estimator.surrogate is None else [estimator.surrogate]
    return f"{' + '.join(type(part).__name__ for part in parts)} with {estimator.draws} draws"
