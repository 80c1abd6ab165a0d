"""Running a race, and judging it.

Every entrant starts from the same point, gets the same seconds of optimisation, and is judged by the
same draws. The mark is the best ELBO that anyone ends with, minus one nat; an entrant arrives when it is
there to stay. At the best solution the noise of each entrant's gradient is measured and multiplied by
the cost of its step.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import jax.random as jr
import numpy as np
from jaxtyping import Array, Key

from ..evaluation.arrival import arrival
from ..evaluation.elbo_terms import MARGIN, ElboTerms
from ..evaluation.gradient_noise import gradient_variance
from ..families import AbstractFamily
from ..fitting import problem_of, run
from ..methods import AbstractMethod, Sgd
from ..results import FitResult
from ..scale.compilation_cache import keep_compiled_once
from ..session import Evaluation, Problem, Recorder
from ..status import Status
from ..targets import Target
from .entrants import Entrant, entrants_for, method_of
from .result import Lane, RaceResult

EVALUATIONS = 40
DRAWS = 512
# Steps that are timed before a run, to spread its evaluations over its seconds.
TRIAL = 60


class _Run(NamedTuple):
    """A finished run, the terms of its answer at the judge's draws, and the seconds of its step."""

    result: FitResult
    terms: ElboTerms
    pace: float | None


def race(
    target: Target,
    family: AbstractFamily | str = "mean-field",
    *,
    entrants: Mapping[str, Entrant] | None = None,
    seconds: float = 4.0,
    learning_rate: float = 0.01,
    batch_size: int | None = None,
    key: Key[Array, ""],
) -> RaceResult:
    """Run several methods on a target under equal budgets of optimisation time.

    Ctrl-C ends the race with those that have run.

    Args:
        target: what is inferred.
        family: as in `fit`, a common start for all; not "auto".
        entrants: labels and what runs under them: methods, estimators, or registered names of either.
            None takes a selection that suits full data or minibatches.
        seconds: optimisation seconds of each entrant; compilation comes on top.
        learning_rate: Adam's step size, for entrants that are estimators.
        batch_size: rows used in a step; None uses all of them.
        key: a random key.

    Returns:
        A lane for each entrant, in the order of arrival within 1 nat of the best ELBO, and a
        recommendation; `left_out` says why entrants could not run.
    """
    if not seconds > 0:
        raise ValueError(f"seconds must be positive; got {seconds!r}")
    keep_compiled_once()
    problem = problem_of(target, family, batch_size, key=key)
    field = entrants_for(full_batch=batch_size is None) if entrants is None else dict(entrants)
    methods = {name: method_of(given, learning_rate) for name, given in field.items()}
    left_out: dict[str, str] = {}
    runs: dict[str, _Run] = {}
    for name, method in methods.items():
        reason = method.refuses(target, problem.q, batch_size)
        if reason is not None:
            left_out[name] = reason
            continue
        runs[name] = _run(problem, method, seconds, key)
        if runs[name].result.status is Status.INTERRUPTED:
            break
    if not runs:
        raise ValueError(f"no entrant can run on this target: {left_out}")
    best_name = max(runs, key=lambda name: _height(runs[name]))
    best = runs[best_name]
    if not math.isfinite(_height(best)):
        raise ValueError(f"no entrant reached a finite ELBO: {best.result.hint}")
    mark = best.terms.elbo - MARGIN
    lanes = [_lane(name, done, problem, best.result.q, mark, key) for name, done in runs.items()]
    lanes.sort(key=lambda lane: (_or_inf(lane.seconds_to_mark), -lane.elbo))
    return RaceResult(lanes, mark, lanes[0].name, best.result, left_out, seconds)


def _run(problem: Problem, method: AbstractMethod, seconds: float, key: Key[Array, ""]) -> _Run:
    """A run of about `seconds`, evaluated some `EVALUATIONS` times."""
    evaluation, pace = Evaluation(share=None, shown_draws=DRAWS), None
    if isinstance(method, Sgd):
        trial = Sgd(method.estimator, method.optimizer, TRIAL, TRIAL // 3)
        recorder = Recorder(problem, evaluation=evaluation, key=key)
        timed = run(problem, trial, recorder)
        spent = np.diff(timed.history["seconds"])
        cost = float(np.min(spent)) / (TRIAL // 3) if len(spent) else 1e-3
        every = _steps_between(seconds, cost)
        method = Sgd(method.estimator, method.optimizer, 10 * EVALUATIONS * every, every)
    recorder = Recorder(problem, optimise_seconds=seconds, evaluation=evaluation, key=key)
    result = run(problem, method, recorder)
    if isinstance(method, Sgd):
        pace = result.seconds / result.steps if result.steps else None
    return _Run(result, recorder.shown_terms(recorder.answer), pace)


def _steps_between(seconds: float, cost: float) -> int:
    """Steps of `cost` seconds between two evaluations, for `EVALUATIONS` of them."""
    return max(1, round(seconds / EVALUATIONS / max(cost, 1e-9)))


def _lane(
    name: str, done: _Run, problem: Problem, q: AbstractFamily, mark: float, key: Key[Array, ""]
) -> Lane:
    result, variance = done.result, None
    if result.estimator is not None:
        noise = gradient_variance(
            problem.target,
            q,
            result.estimator,
            state=result.estimator_state,
            repeats=100,
            batch_size=problem.batch_size,
            key=jr.fold_in(key, 1),
        )
        variance = float(noise.total)
    # The answer itself is the last evaluation: what was reached must also be what is returned.
    elbos = np.append(result.history["elbo"], done.terms.elbo)
    clocks = {
        name: np.append(result.history[name], result.history[name][-1]) for name in ("seconds", "step")
    }
    there = {name: arrival(column, elbos, mark) for name, column in clocks.items()}
    return Lane(
        name=name,
        elbo=result.elbo,
        status=str(result.status),
        hint=result.hint,
        clock=result.clock,
        seconds=result.history["seconds"],
        steps=result.history["step"],
        elbos=result.history["elbo"],
        estimator=None if result.estimator is None else type(result.estimator).__name__,
        microseconds=None if done.pace is None else 1e6 * done.pace,
        variance=variance,
        seconds_to_mark=there["seconds"],
        steps_to_mark=None if there["step"] is None else int(there["step"]),
    )


def _height(done: _Run) -> float:
    elbo = done.terms.elbo
    return elbo if math.isfinite(elbo) and not done.result.status.failed else -math.inf


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value
