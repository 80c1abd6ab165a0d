"""Compile what the next cells need, side by side, before any of them is timed.

XLA compiles a program mostly on one thread. A study of many short cells spends most of its time
there, so the cores share the programs of all cells on one task and family; then these run one by one.
"""

import ctypes
import gc
import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax

from .jobs import Job
from .run_cell import Monitor, compile_seconds, fit_parts, make, threads

# Compiled programs are kept until the process holds this much memory.
MEMORY_BYTES = 3 * 2**30


def rehearse(jobs: Iterable[Job]) -> None:
    """Compile the programs of these jobs; what goes wrong will again, and be told, in `run_cell`."""
    _make_room()
    new = {job.programs: job for job in jobs if job.programs not in compile_seconds}
    if len(new) < 2:
        return
    # NoCV first: all others are compared with it, and share its program.
    plain = [job for job in new.values() if job.cell.estimator == "nocv"]
    others = [job for job in new.values() if job.cell.estimator != "nocv"]
    with ThreadPoolExecutor(min(len(new), threads())) as pool:
        for stage in (plain, others):
            list(pool.map(_rehearse, stage))


def bench(job: Job) -> tuple[str, str, str | None]:
    """Jobs with the same bench are rehearsed together."""
    return job.cell.task, job.cell.family, job.module


def ahead(jobs: Sequence[Job], place: int) -> list[Job]:
    """The jobs to rehearse before `jobs[place]`: those on a new bench, or none in the midst of one."""
    if place > 0 and bench(jobs[place]) == bench(jobs[place - 1]):
        return []
    rest = jobs[place:]
    end = next((i for i, job in enumerate(rest) if bench(job) != bench(jobs[place])), len(rest))
    return list(rest[:end])


def _rehearse(job: Job) -> None:
    try:
        parts = make(job)
        if parts.estimator.supports(parts.task.train, parts.q) is None:
            monitor = Monitor(job, parts, math.inf)
            fit_parts(job, parts, lambda q, state, step: {} if step else monitor(q, state, 0), steps=1)
    except Exception:  # noqa: BLE001 - it will happen again where it is told
        return


def _make_room() -> None:
    """Give memory back, as far as this system lets us."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return
    resident = int(statm.read_text().split()[1]) * 4096
    if resident > MEMORY_BYTES:
        jax.clear_caches()
        compile_seconds.clear()
        gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):
        return
