"""One cell from job to record: whatever happens to it becomes a row.

All estimators of a repetition share the seed, and with it the initial point, the minibatches, the
draws at each step and those of every evaluation: comparisons between them are paired.
"""

import functools
import os
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.random as jr
import optax
from jaxtyping import Array, Key, PyTree

from ..environment import environment
from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..loop import fit
from ..metrics import lppd
from ..results import FitResult, Status
from ..tasks import Task
from .jobs import Job
from .noise import Noise
from .records import COLUMNS, Record
from .sources import sources

# Seconds it took to compile the step of each program in this process.
compile_seconds: dict[tuple, float] = {}


class OutOfTime(KeyboardInterrupt):
    """The cell's time is up. `fit` ends on it as on Ctrl-C: with all that it has so far."""


@dataclass(frozen=True)
class Parts:
    """What a job names, made."""

    task: Task
    q: AbstractFamily
    estimator: AbstractEstimator
    baseline: AbstractEstimator | None
    key_fit: Key[Array, ""]
    key_noise: Key[Array, ""]
    key_test: Key[Array, ""]


def run_cell(job: Job) -> Record:
    """Run a cell and say what came of it; only Ctrl-C gets out as an exception."""
    began = time.monotonic()
    try:
        parts = make(job)
        refused = parts.estimator.supports(parts.task.train, parts.q)
        if refused is not None:
            return _record(job, "skipped", refused, parts=parts)
        monitor = Monitor(job, parts, began + job.timeout)
        result = fit_parts(job, parts, monitor, job.cell.steps)
    except OutOfTime:
        return _record(job, "timeout", f"not started after {job.timeout:g} s")
    except Exception as error:  # noqa: BLE001 - a row, whatever it is
        return _record(job, "failed", explain(error))
    if result.status is Status.INTERRUPTED and not monitor.late:
        raise KeyboardInterrupt
    status, reason = "done", ""
    if monitor.late:
        status = "timeout"
        reason = f"stopped after {job.timeout:g} s at step {result.steps:,} of {job.cell.steps:,}"
    wall = time.monotonic() - began
    return _record(job, status, reason, parts=parts, result=result, wall_seconds=wall)


def explain(error: BaseException) -> str:
    """The error's type and message, and where it came from, in one line."""
    message = " ".join(str(error).split())[:500]
    place = traceback.extract_tb(error.__traceback__)
    last = f" ({Path(place[-1].filename).name}:{place[-1].lineno} in {place[-1].name})" if place else ""
    return f"{type(error).__name__}: {message}{last}"


def threads() -> int:
    """How many threads XLA uses in this process."""
    given = os.environ.get("PJRT_NPROC") or os.environ.get("NPROC")
    if given:
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def here() -> dict[str, Any]:
    """The environment of this process, as of the first time somebody asks: the code it has loaded."""
    return {**environment(), "threads": threads()}


class Monitor:
    """Evaluations off the clock: gradient noise, test lppd, and whether there is time left."""

    def __init__(self, job: Job, parts: Parts, deadline: float):
        self.job, self.parts, self.deadline, self.late = job, parts, deadline, False
        self.noise = Noise(
            parts.task.train,
            parts.estimator,
            parts.baseline,
            job.evaluation.variance_repeats,
            job.cell.batch_size,
            job.evaluation.light_evaluation,
        )

    def __call__(self, q: AbstractFamily, state: PyTree, step: int) -> dict[str, float]:
        """What is due at this step."""
        if time.monotonic() > self.deadline:
            self.late = True
            raise OutOfTime
        how, parts, found = self.job.evaluation, self.parts, {}
        if self._due(how.variance_every, step):
            key = jr.fold_in(parts.key_noise, step)
            found |= self.noise.columns(q, state, key=key)
        if self._due(how.lppd_every, step) and parts.task.test is not None:
            key = jr.fold_in(parts.key_test, step)
            found["lppd"] = float(lppd(parts.task.test, q, draws=how.lppd_draws, key=key))
        return found

    def _due(self, every: int, step: int) -> bool:
        return every > 0 and (step % every == 0 or step == self.job.cell.steps)


def make(job: Job) -> Parts:
    """The task, initial q, estimators and keys that a job names."""
    cell = job.cell
    room = sources(None if job.module is None else Path(job.module))
    task = room.task(cell.task)
    key_start, *keys = jr.split(jr.key(job.seed), 4)
    plain = cell.estimator == "nocv" and not cell.settings
    return Parts(
        task,
        room.family(cell.family).init(task.dim, key=key_start),
        room.estimator(cell.estimator, draws=cell.draws, settings=cell.settings),
        None if plain else room.estimator("nocv", draws=cell.draws, settings={}),
        *keys,
    )


def fit_parts(job: Job, parts: Parts, monitor: Any, steps: int) -> FitResult:
    """Fit as the job says, for this many steps."""
    result = fit(
        parts.task.train,
        parts.q,
        estimator=parts.estimator,
        optimizer=optax.adam(job.cell.learning_rate),
        steps=steps,
        batch_size=job.cell.batch_size,
        evaluate_every=job.evaluation.evaluate_every,
        evaluation_draws=job.evaluation.elbo_draws,
        monitor=monitor,
        progress=False,
        key=parts.key_fit,
    )
    compile_seconds.setdefault(job.programs, result.compile_seconds)
    return result


def _record(
    job: Job,
    status: str,
    reason: str = "",
    *,
    parts: Parts | None = None,
    result: FitResult | None = None,
    **more: Any,
) -> Record:
    outcome: dict[str, Any] = {"fingerprint": job.fingerprint, "timed": job.timed, **more}
    if parts is not None:
        outcome |= {
            "dim": parts.task.dim,
            "title": parts.task.title,
            "simulated": parts.task.simulated,
            "biased": bool(parts.estimator.biased),
        }
    columns: dict[str, Any] = {}
    if result is not None:
        columns = {name: result.history[name] for name in COLUMNS if name in result.history}
        outcome |= {
            "elbo": result.elbo,
            "elbo_error": result.elbo_error,
            "compile_seconds": compile_seconds[job.programs],
            "fit_status": str(result.status),
            "hint": result.hint,
            "steps": result.steps,
        }
    return Record(job.cell, status, reason, columns, outcome, here(), job.seed)
