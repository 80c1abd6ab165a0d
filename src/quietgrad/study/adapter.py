"""The only module of a study that calls the engine: a cell's method is made, asked and run here."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import optax
from jaxtyping import Array, Key, PyTree

from .. import fitting
from .._util.checks import lookup, unknown
from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..methods import REGISTRY as METHODS
from ..methods import AbstractMethod, Sgd
from ..results import FitResult
from ..session import Evaluation, Moment, Problem, Recorder
from ..status import Status
from ..targets import Target
from .records import Cell
from .user_module import Registry

INTERRUPTED = str(Status.INTERRUPTED)
# What the settings of a row of "sgd" may say; optimisers are not plain values, so Adam is described.
SGD_SETTINGS = ("estimator", "learning_rate", "steps", "schedule")
SCHEDULES = ("constant", "cosine")
# Times as many draws at the end of a run as on the way.
FINAL = 16

# Called at every evaluation with q, the estimator's state and the step; returns columns of the history.
Callback = Callable[[AbstractFamily, PyTree, int], Mapping[str, float]]


@dataclass(frozen=True)
class Method:
    """A cell's method, ready to run. `estimator` is None where the method chooses its own."""

    made: AbstractMethod
    estimator: AbstractEstimator | None


class Run(NamedTuple):
    """What a record takes from a fit."""

    history: Mapping[str, np.ndarray]
    elbo: float
    elbo_error: float
    status: str
    hint: str
    steps: int
    compile_seconds: float
    decisions: tuple[str, ...]
    judge_offset: float


def make_method(cell: Cell, registry: Registry) -> Method:
    """The method that a cell names; unknown names and settings are errors. Nothing is loaded."""
    kind = lookup(METHODS, cell.method, "method")
    settings = dict(cell.settings)
    if cell.estimator is not None:
        estimator = registry.estimator(cell.estimator, draws=cell.draws, **settings)
        return Method(Sgd(estimator, _adam(cell, "constant")), estimator)
    accepted = SGD_SETTINGS if kind is Sgd else tuple(field.name for field in dataclasses.fields(kind))
    for name in settings:
        if name not in accepted:
            raise ValueError(unknown(f"setting of method {cell.method!r}:", name, accepted))
    estimator = _named(settings.pop("estimator", None), registry)
    if kind is Sgd:
        if estimator is None:
            raise ValueError('a row of method "sgd" needs an estimator in its settings')
        return Method(Sgd(estimator, _adam(cell, settings.get("schedule", "constant"))), estimator)
    kept: dict[str, Any] = {} if estimator is None else {"estimator": estimator}
    return Method(kind(**settings, **kept), estimator)


def refusal(method: Method, target: Target, q: AbstractFamily, batch_size: int | None) -> str | None:
    """Why a method cannot run on this target and family, or None."""
    return method.made.refuses(target, q, batch_size)


def run_method(
    method: Method,
    target: Target,
    q: AbstractFamily,
    *,
    batch_size: int | None,
    steps: int | None,
    evaluate_every: int,
    elbo_draws: int,
    callback: Callback,
    key: Key[Array, ""],
) -> Run:
    """Fit, with ELBOs on all rows from `elbo_draws` draws that depend on the key only.

    The answer is evaluated with `FINAL` times as many others. What the first ones err by there, they err
    by all along the last nats of the run: it is stored as `judge_offset`.
    """
    made = method.made
    if isinstance(made, Sgd):
        assert steps is not None
        made = Sgd(made.estimator, made.optimizer, steps, evaluate_every)

    def told(moment: Moment) -> Mapping[str, float]:
        return callback(moment.q, moment.estimator_state, moment.step)

    problem = Problem(target, q, batch_size)
    evaluation = Evaluation(elbo_draws, FINAL * elbo_draws, share=None)
    recorder = Recorder(problem, evaluation=evaluation, callback=told, key=key)
    result = fitting.run(problem, made, recorder)
    return _told(result, recorder.answer.terms.elbo - result.elbo)


def _named(given: Any, registry: Registry) -> AbstractEstimator | None:
    """An estimator in a method's settings: a name, or a table with name, draws and its own settings."""
    if given is None or isinstance(given, str):
        return None if given is None else registry.estimator(given)
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise ValueError(f"estimator must be a name, or a table with a name and settings; got {given!r}")
    settings = dict(given)
    return registry.estimator(settings.pop("name"), **settings)


def _adam(cell: Cell, schedule: str) -> optax.GradientTransformation:
    assert cell.learning_rate is not None
    assert cell.steps is not None
    lookup(dict.fromkeys(SCHEDULES), schedule, "schedule")
    if schedule == "cosine":
        return optax.adam(optax.cosine_decay_schedule(cell.learning_rate, cell.steps))
    return optax.adam(cell.learning_rate)


def _told(result: FitResult, offset: float) -> Run:
    return Run(
        result.history,
        result.elbo,
        result.elbo_error,
        str(result.status),
        result.hint,
        result.steps,
        result.clock["compile"],
        tuple(map(str, result.decisions)),
        offset if math.isfinite(offset) else 0.0,
    )
