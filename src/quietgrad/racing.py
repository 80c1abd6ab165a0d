"""The race: which estimator reaches the answer first on this model and this machine, and why.

Every candidate starts from the same point and gets the same seconds of optimisation; the mark to reach
is the best ELBO that anyone finds, minus one nat. At the winner's solution the noise of each candidate's
gradient is measured and multiplied by the cost of its step.
"""

import math
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Key

from . import loop
from .estimators import AbstractEstimator, Pathwise, estimator
from .families import AbstractFamily, MeanField
from .fitting import METHODS, fit
from .gradient_noise import gradient_variance
from .results import FitResult, Status
from .targets import Target

EVALUATIONS = 40
MARGIN = 1.0


class Lane(eqx.Module):
    """One candidate's run. `seconds_to_mark` and `steps_to_mark` are None if it did not get there."""

    name: str
    elbo: float
    status: str
    seconds: np.ndarray
    steps: np.ndarray
    elbos: np.ndarray
    microseconds: float
    variance: float
    seconds_to_mark: float | None
    steps_to_mark: int | None

    @property
    def noise_cost(self) -> float:
        """Variance times seconds a step: the lower, the cheaper a quiet gradient."""
        return self.variance * self.microseconds * 1e-6


class RaceResult(eqx.Module):
    """All lanes, the mark, the winner's fit, and candidates that could not start with the reason."""

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
                "candidate": lane.name,
                "elbo": lane.elbo,
                "status": lane.status,
                "seconds_to_mark": lane.seconds_to_mark,
                "steps_to_mark": lane.steps_to_mark,
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


def candidates(*, full_batch: bool) -> dict[str, AbstractEstimator | str]:
    """The default field: the paper's estimators and ours; "auto" and "saa" stand for those methods."""
    field: dict[str, AbstractEstimator | str] = {
        "nocv 10 draws": estimator("nocv", draws=10),
        "nocv 50 draws": estimator("nocv", draws=50),
        "zvcv-gd 10 draws": estimator("zvcv-gd", draws=10),
        "quadcv 10 draws": estimator("quadcv", draws=10),
        "stl 10 draws": estimator("stl", draws=10),
        "quiet": estimator("quiet"),
        "rqmc + stl 8 draws": Pathwise(sampler="rqmc", entropy="stl", draws=8),
    }
    return field | {"auto": "auto"} | ({"saa": "saa"} if full_batch else {})


def race(
    target: Target,
    q: AbstractFamily | None = None,
    *,
    entrants: Mapping[str, AbstractEstimator | str] | None = None,
    seconds: float = 4.0,
    learning_rate: float = 0.01,
    batch_size: int | None = None,
    key: Key[Array, ""],
) -> RaceResult:
    """Run candidates on a target under equal budgets of optimisation time.

    `q` is the common start (mean-field as in the paper by default), `entrants` maps labels to
    estimators, registered names, "auto" or "saa", `seconds` is each candidate's budget and
    `learning_rate` Adam's, the same for all that do not choose their own.
    """
    if not seconds > 0:
        raise ValueError(f"seconds must be positive; got {seconds!r}")
    key_start, key_run, key_noise = jr.split(key, 3)
    if q is None:
        if target.dim is None:
            raise ValueError("the target does not say its dim; give q=MeanField.init(dim, key=...)")
        q = MeanField.init(target.dim, key=key_start)
    field = candidates(full_batch=batch_size is None) if entrants is None else dict(entrants)
    left_out: dict[str, str] = {}
    results: dict[str, tuple[AbstractEstimator, FitResult, float]] = {}
    for name, given in field.items():
        made = _made(given)
        reason = made.supports(target, q)
        if reason is not None:
            left_out[name] = reason
            continue
        result, cost = _run(target, q, given, made, seconds, learning_rate, batch_size, key_run)
        results[name] = (made, result, cost)
    if not results:
        raise ValueError(f"no candidate can run on this target: {left_out}")
    best_name = max(results, key=lambda name: _height(results[name][1]))
    best = results[best_name][1]
    if not math.isfinite(_height(best)):
        raise ValueError(
            "no candidate reached a finite ELBO: the log density is NaN or infinite where the "
            "variational family puts its draws. Evaluate target.log_density at a few draws of q, and "
            "look for log of a negative number, division by zero or overflow"
        )
    mark = best.elbo - MARGIN
    lanes = []
    for name, (made, result, cost) in results.items():
        noise = gradient_variance(
            target,
            best.q,
            made,
            state=result.estimator_state,
            repeats=100,
            batch_size=batch_size,
            key=key_noise,
        )
        lanes.append(_lane(name, result, cost, float(noise.total), mark))
    lanes.sort(key=lambda lane: (_or_inf(lane.seconds_to_mark), -lane.elbo))
    return RaceResult(lanes, mark, lanes[0].name, best, left_out, seconds)


def _made(given: AbstractEstimator | str) -> AbstractEstimator:
    if isinstance(given, str):
        return estimator("quiet" if given in METHODS else given)
    return given


def _run(
    target: Target,
    q: AbstractFamily,
    given: AbstractEstimator | str,
    made: AbstractEstimator,
    seconds: float,
    learning_rate: float,
    batch_size: int | None,
    key: Key[Array, ""],
) -> tuple[FitResult, float]:
    """A run of about `seconds`, evaluated some `EVALUATIONS` times, and the seconds of a step."""
    optimizer = optax.adam(learning_rate)
    common: dict[str, Any] = {"batch_size": batch_size, "progress": False, "key": key}
    trial = loop.fit(
        target, q, estimator=made, optimizer=optimizer, steps=60, evaluate_every=20, **common
    )
    spent = np.diff(trial.history["seconds"])
    cost = float(np.min(spent)) / 20 if len(spent) else 1e-3
    if given == "saa":
        return fit(target, q, method="saa", key=key), cost
    if given == "auto":
        return fit(target, q, method="auto", batch_size=batch_size, seconds=seconds, key=key), cost
    every = max(1, round(seconds / EVALUATIONS / cost))
    steps = max(every, int(10 * seconds / cost))
    result = loop.fit(
        target,
        q,
        estimator=made,
        optimizer=optimizer,
        steps=steps,
        evaluate_every=every,
        seconds=seconds,
        **common,
    )
    return result, result.seconds / max(result.steps, 1) if result.steps else cost


def _lane(name: str, result: FitResult, cost: float, variance: float, mark: float) -> Lane:
    elbo = result.history["elbo"]
    there = np.flatnonzero(elbo >= mark)
    first = int(there[0]) if len(there) and result.status is not Status.NON_FINITE else None
    return Lane(
        name=name,
        elbo=result.elbo,
        status=str(result.status),
        seconds=result.history["seconds"],
        steps=result.history["step"],
        elbos=elbo,
        microseconds=1e6 * cost,
        variance=variance,
        seconds_to_mark=None if first is None else float(result.history["seconds"][first]),
        steps_to_mark=None if first is None else int(result.history["step"][first]),
    )


def _height(result: FitResult) -> float:
    return result.elbo if math.isfinite(result.elbo) else -math.inf


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value
