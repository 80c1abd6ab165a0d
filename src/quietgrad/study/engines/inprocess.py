"""One cell after another, in this process: the simplest engine, and the one to debug with."""

import contextlib
from collections.abc import Callable, Sequence

from ..jobs import CellJob
from ..locks import host_lock
from ..precompile import group_ahead, precompile
from ..records import Record
from ..run_cell import run_cell
from ..store import Store
from . import Listener

WAITING = "waiting: another timed study is running on this host"


def run(
    jobs: Sequence[CellJob],
    store: Store,
    listener: Listener,
    address: str | None = None,
    *,
    run_cell: Callable[[CellJob], Record] = run_cell,
) -> None:
    """Run the jobs; timed ones while no other study on this host times anything."""
    del address
    for place, job in enumerate(jobs):
        lock = host_lock(lambda: listener.note(WAITING)) if job.timed else contextlib.nullcontext()
        with lock:
            listener.started(job)
            precompile(group_ahead(jobs, place))
            record = run_cell(job)
            store.write(record)
        listener.finished(job, record.status)
