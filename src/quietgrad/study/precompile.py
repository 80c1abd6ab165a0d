"""Compile what the next cells need, side by side, before any of them is timed.

XLA compiles a program mostly on one thread. A study of many short cells spends most of its time
there, so the cores share the programs of all cells on one task and family; then these run one by one.
"""

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from .._util.environment import threads
from .._util.memory import crowded, forget_programs, give_back
from .adapter import refusal
from .jobs import CellJob
from .run_cell import compile_seconds, evaluator_of, fit_parts, make

# Compiled programs are kept until the process holds this much memory.
MEMORY_BYTES = 3 * 2**30


def precompile(jobs: Iterable[CellJob], memory_bytes: int = MEMORY_BYTES) -> None:
    """Compile the programs of these jobs; what goes wrong will again, and be reported, in `run_cell`.

    Methods that end themselves compile as they go, so only rows of "sgd" are compiled here. Programs
    are forgotten first where the process holds more than `memory_bytes`, or too many of them.
    """
    if crowded(memory_bytes):
        forget_programs()
        compile_seconds.clear()
    else:
        give_back()
    new = {
        job.programs: job
        for job in jobs
        if job.programs not in compile_seconds and not job.cell.ends_itself
    }
    if len(new) < 2:
        return
    # NoCV first: all others are compared with it, and share its program.
    plain = [job for job in new.values() if job.cell.estimator == "nocv"]
    others = [job for job in new.values() if job.cell.estimator != "nocv"]
    with ThreadPoolExecutor(min(len(new), threads())) as pool:
        for stage in (plain, others):
            list(pool.map(_compile, stage))


def compile_group(job: CellJob) -> tuple[str, str, str | None]:
    """Jobs of the same group are compiled together."""
    return job.cell.task, job.cell.family, job.module


def group_ahead(jobs: Sequence[CellJob], place: int) -> list[CellJob]:
    """The jobs to compile before `jobs[place]`: its group if it begins one, else none."""
    if place > 0 and compile_group(jobs[place]) == compile_group(jobs[place - 1]):
        return []
    rest, group = jobs[place:], compile_group(jobs[place])
    end = next((i for i, job in enumerate(rest) if compile_group(job) != group), len(rest))
    return list(rest[:end])


def _compile(job: CellJob) -> None:
    try:
        parts = make(job)
        if refusal(parts.method, parts.task.train, parts.q, job.cell.batch_size) is None:
            evaluator = evaluator_of(job, parts, math.inf)
            fit_parts(job, parts, lambda q, state, step: {} if step else evaluator(q, state, 0), steps=1)
    except Exception:  # noqa: BLE001 - it will happen again where it is reported
        return
