"""Cells in processes of their own: a crash or a hang costs one cell, not the study.

Each process runs many cells, so that compiled programs are shared. Timed cells have one process; untimed
ones as many as there are cores, each with its share of XLA's threads.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from ..._util.environment import current_environment, threads
from ..jobs import CellJob, lost, overdue
from ..locks import host_lock
from ..precompile import compile_group, group_ahead
from ..store import Store
from . import Listener
from .inprocess import WAITING

# A cell ends itself at the first evaluation after its timeout; this much later its process is killed.
GRACE_SECONDS = 30.0
# Which jobs to compile before the one at a place.
Ahead = Callable[[Sequence[CellJob], int], list[CellJob]]


def run(
    jobs: Sequence[CellJob],
    store: Store,
    listener: Listener,
    address: str | None = None,
    *,
    grace: float = GRACE_SECONDS,
    ahead: Ahead = group_ahead,
) -> None:
    """Run timed jobs one by one, untimed ones side by side.

    A process is killed `grace` seconds after its cell's timeout. `ahead` says what to compile first.
    """
    del address
    timed = [job for job in jobs if job.timed]
    untimed = [job for job in jobs if not job.timed]
    workers = _WorkerPool(store, listener, grace, ahead)
    lanes = _lanes(untimed, threads())
    with ThreadPoolExecutor(threads()) as pool:
        try:
            workers.run(timed, share=1)
            list(pool.map(lambda lane: workers.run(lane, share=len(lanes)), lanes))
        except BaseException:
            workers.stop()
            raise


def _lanes(jobs: Sequence[CellJob], count: int) -> list[list[CellJob]]:
    """Share out jobs, those of one compile group together while there are enough groups."""
    groups: dict[Any, list[CellJob]] = {}
    for job in jobs:
        groups.setdefault(compile_group(job), []).append(job)
    units = list(groups.values()) if len(groups) >= count else [[job] for job in jobs]
    lanes: list[list[CellJob]] = [[] for _ in range(min(count, len(units)))]
    for unit in sorted(units, key=len, reverse=True):
        min(lanes, key=len).extend(unit)
    return lanes


class _WorkerPool:
    """The processes at work, and what they do."""

    def __init__(self, store: Store, listener: Listener, grace: float, ahead: Ahead):
        self.store, self.listener, self.grace, self.ahead = store, listener, grace, ahead
        self.workers: set[_Worker] = set()
        self.stopped = threading.Event()

    def stop(self) -> None:
        """End all processes; what they were doing is not stored."""
        self.stopped.set()
        for worker in list(self.workers):
            worker.process.kill()

    def run(self, jobs: Sequence[CellJob], *, share: int) -> None:
        """Run jobs one by one, in one process for as long as it lives."""
        with contextlib.ExitStack() as stack:
            worker = None
            for place, job in enumerate(jobs):
                with self._turn(job):
                    self.listener.started(job)
                    coming = self.ahead(jobs, place)
                    limit = self.grace + sum(one.timeout for one in coming)
                    if worker is None or worker.dead:
                        worker = stack.enter_context(self._started(share))
                    if coming and worker.ask("precompile", coming, self.store, limit) is None:
                        worker = stack.enter_context(self._started(share))
                    limit = job.timeout + self.grace
                    status = worker.ask("run", [job], self.store, limit)
                    if self.stopped.is_set():
                        return
                    if status is None:
                        reason, where = worker.failure_reason(job, limit), current_environment()
                        record = lost(job, reason, where, timeout=worker.killed)
                        self.store.write(record)
                        status = record.status
                self.listener.finished(job, status)

    def _turn(self, job: CellJob) -> contextlib.AbstractContextManager[None]:
        if not job.timed:
            return contextlib.nullcontext()
        return host_lock(lambda: self.listener.note(WAITING))

    @contextlib.contextmanager
    def _started(self, share: int) -> Iterator["_Worker"]:
        worker = _Worker(share)
        self.workers.add(worker)
        if self.stopped.is_set():
            worker.process.kill()
        try:
            yield worker
        finally:
            self.workers.remove(worker)
            worker.end()


class _Worker:
    """A process that is asked to do one thing after another, in lines of JSON."""

    def __init__(self, share: int):
        root = str(Path(__file__).parents[3])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        precision = "1" if current_environment()["precision"] == "float64" else "0"
        environment = {**os.environ, "PYTHONPATH": path, "JAX_ENABLE_X64": precision}
        if share > 1:
            environment["PJRT_NPROC"] = str(max(1, threads() // share))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "quietgrad.study.engines.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self.killed = False

    @property
    def dead(self) -> bool:
        """Whether the process has ended."""
        return self.process.poll() is not None

    def end(self) -> None:
        """End the process now and close what led to it."""
        self.process.kill()
        self.process.wait()
        for pipe in filter(None, (self.process.stdin, self.process.stdout)):
            with contextlib.suppress(OSError):
                pipe.close()

    def ask(self, what: str, jobs: Sequence[CellJob], store: Store, limit: float) -> str | None:
        """The answer; None if the process died, or was killed because it took longer than `limit`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {"do": what, "store": str(store.root), "jobs": [job.to_json() for job in jobs]}
        timer = threading.Timer(limit, self._too_long)
        # Ctrl-C may come before there is a chance to cancel it, and must not wait for it.
        timer.daemon = True
        try:
            timer.start()
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except (BrokenPipeError, ValueError):
            answer = ""
        finally:
            timer.cancel()
        if not answer:
            self.process.wait()
            return None
        return json.loads(answer)["status"]

    def failure_reason(self, job: CellJob, limit: float) -> str:
        """Why there is no answer within `limit` seconds."""
        if self.killed:
            return overdue(job, limit)
        code = self.process.returncode
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the process that ran it died: {how} (out of memory, or a crash in compiled code?)"

    def _too_long(self) -> None:
        self.killed = True
        self.process.kill()
