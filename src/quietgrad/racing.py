"""The race: which method and estimator reach the answer first on this model and this machine, and why.

Every entrant starts from the same point, gets the same seconds of optimisation, and is judged by the
same draws. The mark is the best ELBO that anyone ends with, minus one nat; an entrant arrives when it is
there to stay. At the best solution the noise of each entrant's gradient is measured and multiplied by
the cost of its step.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Key

from .compilation_cache import keep_compiled_once
from .estimators import REGISTRY as ESTIMATORS
from .estimators import AbstractEstimator, Pathwise, estimator
from .families import AbstractFamily
from .fitting import problem_of, run
from .gradient_noise import gradient_variance
from .judging import MARGIN, Terms, arrival
from .methods import REGISTRY as METHODS
from .methods import AbstractMethod, Sgd
from .recorder import Evaluation, Problem, Recorder
from .results import FitResult, Status
from .targets import Target

EVALUATIONS = 40
DRAWS = 512
# Steps that are timed before a run, to spread its evaluations over its seconds.
TRIAL = 60

Entrant = AbstractMethod | AbstractEstimator | str


class Lane(eqx.Module):
    """One entrant's run. What does not apply is None: a mark that was not reached, the noise of a
    method without an estimator, the cost of a step where steps differ."""

    name: str
    elbo: float
    status: str
    hint: str
    clock: dict[str, float]
    seconds: np.ndarray
    steps: np.ndarray
    elbos: np.ndarray
    estimator: str | None
    microseconds: float | None
    variance: float | None
    seconds_to_mark: float | None
    steps_to_mark: int | None

    @property
    def noise_cost(self) -> float | None:
        """Variance times seconds a step: the lower, the cheaper a quiet gradient."""
        if self.variance is None or self.microseconds is None:
            return None
        return self.variance * self.microseconds * 1e-6


class RaceResult(eqx.Module):
    """All lanes, the mark, the best fit, and entrants that could not start with the reason."""

    lanes: list[Lane]
    mark: float
    winner: str
    best: FitResult
    left_out: dict[str, str]
    budget: float

    def recommendation(self) -> str:
        """One sentence on what to use and why."""
        lanes = {lane.name: lane for lane in self.lanes}
        winner = lanes[self.winner]
        if winner.seconds_to_mark is None:
            return (
                f"Nobody held the best ELBO long enough to say; {self.winner} ended highest. "
                "Give the race more seconds."
            )
        text = (
            f"Use {self.winner}: it came within {MARGIN:g} nat of the best ELBO "
            f"({self.mark + MARGIN:.1f}) after {winner.seconds_to_mark:.2g} s"
        )
        plain = lanes.get("nocv 10 draws")
        if plain is None or plain is winner:
            return f"{text}."
        if plain.seconds_to_mark is None:
            return f"{text}; plain gradients with 10 draws did not get there in {self.budget:.2g} s."
        times = plain.seconds_to_mark / max(winner.seconds_to_mark, 1e-9)
        return f"{text}, {times:.1f} times as fast as plain gradients with 10 draws."

    def rows(self) -> list[dict[str, Any]]:
        """The lanes as plain values, fastest first."""
        return [
            {
                "entrant": lane.name,
                "elbo": lane.elbo,
                "status": lane.status,
                "clock": lane.clock,
                "seconds_to_mark": lane.seconds_to_mark,
                "steps_to_mark": lane.steps_to_mark,
                "estimator": lane.estimator,
                "microseconds_a_step": lane.microseconds,
                "gradient_variance": lane.variance,
                "variance_times_cost": lane.noise_cost,
                "history": {
                    "seconds": lane.seconds.tolist(),
                    "steps": lane.steps.tolist(),
                    "elbo": lane.elbos.tolist(),
                },
            }
            for lane in self.lanes
        ]


def entrants_for(*, full_batch: bool) -> dict[str, Entrant]:
    """The default field: the paper's estimators and ours, and the methods that need no tuning."""
    field: dict[str, Entrant] = {
        "nocv 10 draws": estimator("nocv", draws=10),
        "nocv 50 draws": estimator("nocv", draws=50),
        "zvcv-gd 10 draws": estimator("zvcv-gd", draws=10),
        "quadcv 10 draws": estimator("quadcv", draws=10),
        "stl 10 draws": estimator("stl", draws=10),
        "quiet": estimator("quiet"),
        "rqmc + stl 8 draws": Pathwise(sampler="rqmc", entropy="stl", draws=8),
    }
    return field | {"auto": "auto"} | ({"saa": "saa"} if full_batch else {})


class _Run(NamedTuple):
    """A finished run, the terms of its answer at the judge's draws, and the seconds of its step."""

    result: FitResult
    terms: Terms
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
    """Run entrants on a target under equal budgets of optimisation time.

    `family` is as in `fit`, a common start for all. `entrants` maps labels to methods, estimators or
    registered names of either; estimators take Adam steps at `learning_rate`. `seconds` is each
    entrant's budget of optimisation. Ctrl-C ends the race with those that have run.
    """
    if not seconds > 0:
        raise ValueError(f"seconds must be positive; got {seconds!r}")
    keep_compiled_once()
    problem = problem_of(target, family, batch_size, key=key)
    field = entrants_for(full_batch=batch_size is None) if entrants is None else dict(entrants)
    methods = {name: _method(given, learning_rate) for name, given in field.items()}
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


def _method(given: Entrant, learning_rate: float) -> AbstractMethod:
    if isinstance(given, AbstractMethod):
        return given
    if isinstance(given, str) and given in METHODS:
        return METHODS[given]()
    if isinstance(given, str) and given not in ESTIMATORS:
        known = ", ".join([*METHODS, *ESTIMATORS])
        raise ValueError(f"unknown entrant {given!r}; known methods and estimators: {known}")
    return Sgd(given, optax.adam(learning_rate))


def _run(problem: Problem, method: AbstractMethod, seconds: float, key: Key[Array, ""]) -> _Run:
    """A run of about `seconds`, evaluated some `EVALUATIONS` times."""
    evaluation, pace = Evaluation(share=None, shown_draws=DRAWS), None
    if isinstance(method, Sgd):
        trial = Sgd(method.estimator, method.optimizer, TRIAL, TRIAL // 3)
        recorder = Recorder(problem, evaluation=evaluation, key=key)
        timed = run(problem, trial, recorder)
        spent = np.diff(timed.history["seconds"])
        cost = float(np.min(spent)) / (TRIAL // 3) if len(spent) else 1e-3
        every = max(1, round(seconds / EVALUATIONS / max(cost, 1e-9)))
        method = Sgd(method.estimator, method.optimizer, 10 * EVALUATIONS * every, every)
    recorder = Recorder(problem, optimise_seconds=seconds, evaluation=evaluation, key=key)
    result = run(problem, method, recorder)
    if isinstance(method, Sgd):
        pace = result.seconds / result.steps if result.steps else None
    return _Run(result, recorder.shown_terms(recorder.answer), pace)


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
