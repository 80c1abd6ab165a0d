"""Cells on a Dask cluster: a local one, or any that runs already, by the address of its scheduler.

Workers write their own cells to the store, which has to be on a file system that all of them see. A
worker that is lost costs what it was doing, and that is done by another. One that hangs stores that and
ends itself. The scheduler may be lost, too: what is stored stays stored, and a rerun does the rest.
"""

import contextlib
import dataclasses
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..._util.environment import current_environment, threads
from ..._util.extras import needs_extra
from ..jobs import CellJob, lost, overdue
from ..locks import host_lock
from ..records import Record
from ..store import Store
from . import Listener
from .processes import GRACE_SECONDS

with needs_extra("study", "the dask engine"):
    from distributed import Client, LocalCluster, Security, as_completed, get_worker
    from distributed.comm.core import connect
    from distributed.utils import LoopRunner, wait_for

CONNECT_SECONDS = 30
LOOPBACK = "127.0.0.1"
# Seconds between two looks for what is completed, seconds without anything after which workers are
# counted, and how often they are replaced when there is none.
POLL_SECONDS, ALONE_SECONDS, MOST_REVIVALS = 0.05, 15.0, 3
DYING = (
    f"no Dask worker stays alive: {MOST_REVIVALS} times all of them died while they started; is there "
    "memory enough for them? Cells that are finished are kept"
)


def run(jobs: Sequence[CellJob], store: Store, listener: Listener, address: str | None = None) -> None:
    """Submit every job, and wait until each is stored or given up."""
    root, run_id = str(store.root.resolve()), uuid.uuid4().hex[:8]
    with _cluster(jobs, address) as cluster, _client(cluster) as client:
        futures = {
            client.submit(
                run_on_worker, job.to_json(), root, run_id, key=f"{job.cell.name}-{run_id}", pure=False
            ): job
            for job in jobs
        }
        try:
            for future in _completed(futures, client, cluster):
                job = futures[future]
                if future.status == "finished":
                    listener.finished(job, future.result())
                elif future.status == "error":
                    record = lost(job, _why(future.exception()), current_environment())
                    store.write(record)
                    listener.finished(job, record.status)
                else:
                    listener.note(f"{job.cell.name} was {future.status}: is the scheduler gone?")
        except KeyboardInterrupt:
            client.cancel(list(futures))
            raise


def _completed(
    futures: Iterable[Any], client: Any, cluster: Any, alone_seconds: float = ALONE_SECONDS
) -> Iterator[Any]:
    """Futures as they are completed, with workers for them: local ones that died are replaced.

    Dask's nanny starts a worker again that dies at work, but not one that dies while it starts. Without
    any, futures would be waited for without end.
    """
    waiting, alone, revived = as_completed(futures), 0.0, 0
    while not waiting.is_empty():
        if waiting.has_ready():
            yield next(waiting)
            alone = 0.0
            continue
        time.sleep(POLL_SECONDS)
        alone += POLL_SECONDS
        if isinstance(cluster, str) or alone < alone_seconds:
            continue
        alone = 0.0
        if client.nthreads():
            continue
        if revived == MOST_REVIVALS:
            raise ValueError(DYING)
        revived += 1
        wanted = len(cluster.worker_spec) or 1
        cluster.scale(0)
        cluster.scale(wanted)


def run_on_worker(values: Mapping[str, Any], root: str, run_id: str) -> str:
    """Run one job on the worker that this is called on, and store its cell; the cell's status."""
    _pin_threads()
    from ...scale.compilation_cache import keep_compiled
    from ..run_cell import run_cell

    keep_compiled()
    return run_once(CellJob.from_json(values), Store(Path(root)), run_id, run_cell)


def run_once(
    job: CellJob,
    store: Store,
    run_id: str,
    run_cell: Callable[[CellJob], Record],
    *,
    grace: float = GRACE_SECONDS,
    end_process: Callable[[int], object] = os._exit,
) -> str:
    """Run a job unless this run has its cell already; the cell's status.

    If it takes `grace` seconds longer than its timeout, the process ends.
    """
    with host_lock() if job.timed else contextlib.nullcontext():
        # A worker may be lost between storing a cell and saying so, or may have ended itself.
        stored = store.read(job.cell)
        ended = stored is not None and stored.outcome.get("ended by") == run_id
        if stored is not None and (ended or not store.missing([job], current_environment())):
            return stored.status
        with _ended_if_it_hangs(job, store, run_id, grace, end_process):
            record = run_cell(job)
        store.write(record)
    return record.status


@contextlib.contextmanager
def _ended_if_it_hangs(
    job: CellJob, store: Store, run_id: str, grace: float, end_process: Callable[[int], object]
) -> Iterator[None]:
    """End this process if the job takes too long; Dask's nanny starts another.

    Dask would give the job to one worker after the other. The record tells them that this run is done
    with it; the next one tries again.
    """
    limit = job.timeout + grace

    def end() -> None:
        record = lost(job, overdue(job, limit), current_environment(), timeout=True)
        store.write(dataclasses.replace(record, outcome={**record.outcome, "ended by": run_id}))
        end_process(1)

    timer = threading.Timer(limit, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _pin_threads() -> None:
    """Give XLA as many threads as Dask gives the worker; it would take all cores for each worker."""
    if "jax" not in sys.modules:
        threads = get_worker().state.nthreads
        os.environ.setdefault("PJRT_NPROC", str(threads))
        if threads == 1:
            flags = os.environ.get("XLA_FLAGS", "")
            os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()


@contextlib.contextmanager
def _cluster(
    jobs: Sequence[CellJob], address: str | None, local: Callable[..., Any] = LocalCluster
) -> Iterator[Any]:
    if address is not None:
        yield address
        return
    # Timed cells wait for one another on a host, so one worker does all that several could.
    workers = 1 if any(job.timed for job in jobs) else threads()
    # Whoever reaches a scheduler runs code on it: nobody from outside, whatever Dask's settings say.
    settings = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "host": LOOPBACK}
    cluster = _started(local, n_workers=workers, **settings)
    try:
        yield cluster
    finally:
        # A worker that does not end in time ends with this process; what it did is stored.
        with contextlib.suppress(TimeoutError):
            cluster.close()


def _started(local: Callable[..., Any], **settings: Any) -> Any:
    """A local cluster. One whose workers die while they start is tried again."""
    for _ in range(MOST_REVIVALS):
        with contextlib.suppress(RuntimeError):
            return local(**settings)
    raise ValueError(DYING)


@contextlib.contextmanager
def _client(cluster: Any) -> Iterator[Any]:
    try:
        if isinstance(cluster, str):
            _greet(cluster)
        client = Client(cluster, timeout=CONNECT_SECONDS)
    except OSError as error:
        why = str(error) or f"something listens there and was silent for {CONNECT_SECONDS} s"
        raise ValueError(f"no Dask scheduler answers at {cluster}: {why}") from error
    with client:
        yield client


def _greet(address: str) -> None:
    """Exchange the first words with a scheduler: a client would wait for them without end."""

    async def greet() -> None:
        security = Security().get_connection_args("client")
        try:
            comm = await connect(address, timeout=CONNECT_SECONDS, **security)
        except (MemoryError, TypeError, ValueError, AssertionError) as error:
            # Foreign words, taken for lengths of a message.
            raise OSError("something listens there and is no Dask scheduler") from error
        comm.abort()

    # A loop beside any that runs here, as in a notebook.
    runner = LoopRunner(asynchronous=False)
    runner.start()
    try:
        runner.run_sync(wait_for, greet(), CONNECT_SECONDS)
    finally:
        runner.stop()


def _why(error: BaseException | None) -> str:
    name = type(error).__name__
    if name == "KilledWorker":
        return "every worker that ran it died (out of memory, or a crash in compiled code?)"
    return f"{name}: {' '.join(str(error).split())[:500]}"
