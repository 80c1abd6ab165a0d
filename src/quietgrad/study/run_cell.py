"""One cell from job to record: whatever happens to it becomes a row.

All rows of a repetition share the seed, and with it the initial point, the minibatches, the draws at
each step and those of every evaluation: comparisons between them are paired.
"""

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.random as jr
from jaxtyping import Array, Key

from .._util.environment import current_environment
from ..datasets.tasks import Task
from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from .adapter import INTERRUPTED, Callback, Method, Run, make_method, refusal, run_method
from .evaluator import Evaluator
from .jobs import CellJob
from .records import COLUMNS, Record
from .user_module import load_registry

# Seconds it took to compile the step of each program in this process.
compile_seconds: dict[tuple, float] = {}


@dataclass(frozen=True)
class Parts:
    """What a job names, made. `baseline` is NoCV with as many draws, None for NoCV itself."""

    task: Task
    q: AbstractFamily
    method: Method
    baseline: AbstractEstimator | None
    key_fit: Key[Array, ""]
    key_noise: Key[Array, ""]
    key_test: Key[Array, ""]


def run_cell(job: CellJob, now: Callable[[], float] = time.monotonic) -> Record:
    """Run a cell and say what came of it; only Ctrl-C gets out as an exception.

    `now` is the time in seconds, by which the cell's own limit is kept.
    """
    began = now()
    try:
        parts = make(job)
        refused = refusal(parts.method, parts.task.train, parts.q, job.cell.batch_size)
        if refused is not None:
            return _record(job, "skipped", refused, parts=parts)
        evaluator = evaluator_of(job, parts, began + job.timeout, now)
        run = fit_parts(job, parts, evaluator, job.cell.steps)
    except Exception as error:  # noqa: BLE001 - a row, whatever it is
        return _record(job, "failed", explain(error))
    if run.status == INTERRUPTED and not evaluator.late:
        raise KeyboardInterrupt
    status, reason = "done", ""
    if evaluator.late:
        limit = "" if job.cell.steps is None else f" of {job.cell.steps:,}"
        status, reason = "timeout", f"stopped after {job.timeout:g} s at step {run.steps:,}{limit}"
    wall = now() - began
    return _record(job, status, reason, parts=parts, run=run, wall_seconds=wall)


def explain(error: BaseException) -> str:
    """The error's type and message, and where it came from, in one line."""
    message = " ".join(str(error).split())[:500]
    place = traceback.extract_tb(error.__traceback__)
    last = f" ({Path(place[-1].filename).name}:{place[-1].lineno} in {place[-1].name})" if place else ""
    return f"{type(error).__name__}: {message}{last}"


def make(job: CellJob) -> Parts:
    """The task, initial q, method and keys that a job names."""
    cell = job.cell
    registry = load_registry(None if job.module is None else Path(job.module))
    task = registry.task(cell.task)
    key_start, *keys = jr.split(jr.key(job.seed), 4)
    plain = cell.estimator == "nocv" and not cell.settings
    return Parts(
        task,
        registry.family(cell.family).init(task.dim, key=key_start),
        make_method(cell, registry),
        None if plain or cell.draws is None else registry.estimator("nocv", draws=cell.draws),
        *keys,
    )


def evaluator_of(
    job: CellJob, parts: Parts, deadline: float, now: Callable[[], float] = time.monotonic
) -> Evaluator:
    """What evaluates the job on the way."""
    return Evaluator(
        job,
        parts.task.train,
        parts.task.test,
        # A variance ratio is to NoCV with as many draws, so it takes a fixed number of them.
        None if job.cell.draws is None else parts.method.estimator,
        parts.baseline,
        deadline=deadline,
        now=now,
        key_noise=parts.key_noise,
        key_test=parts.key_test,
    )


def fit_parts(job: CellJob, parts: Parts, callback: Callback, steps: int | None) -> Run:
    """Fit as the job says, for this many steps."""
    run = run_method(
        parts.method,
        parts.task.train,
        parts.q,
        batch_size=job.cell.batch_size,
        steps=steps,
        evaluate_every=job.schedule.evaluate_every,
        elbo_draws=job.schedule.elbo_draws,
        callback=callback,
        key=parts.key_fit,
    )
    compile_seconds.setdefault(job.programs, run.compile_seconds)
    return run


def _record(
    job: CellJob,
    status: str,
    reason: str = "",
    *,
    parts: Parts | None = None,
    run: Run | None = None,
    **more: Any,
) -> Record:
    outcome: dict[str, Any] = {"fingerprint": job.fingerprint, "timed": job.timed, **more}
    if parts is not None:
        estimator = parts.method.estimator
        outcome |= {
            "dim": parts.task.dim,
            "title": parts.task.title,
            "simulated": parts.task.simulated,
            "biased": None if estimator is None else bool(estimator.biased),
        }
    columns: dict[str, Any] = {}
    if run is not None:
        columns = {name: run.history[name] for name in COLUMNS if name in run.history}
        outcome |= {
            "elbo": run.elbo,
            "elbo_error": run.elbo_error,
            "judge": job.schedule.judge,
            "judge_offset": run.judge_offset,
            "compile_seconds": compile_seconds[job.programs],
            "fit_status": run.status,
            "hint": run.hint,
            "steps": run.steps,
            "decisions": list(run.decisions),
        }
    return Record(job.cell, status, reason, columns, outcome, current_environment(), job.seed)
