"""Run a study: plan, do what is missing, count what there is."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from .._util.environment import current_environment
from .checkout import CHECKOUT
from .engines import Engine
from .engines import engine as engine_of
from .jobs import CellJob
from .locks import directory_lock
from .plan import plan
from .progress import StudyProgress
from .spec import Spec
from .store import Planned, Store


@dataclass(frozen=True)
class Outcome:
    """How many of the study's cells are in which state, after a run of `ran` of them."""

    counts: Counter[str]
    ran: int
    interrupted: bool

    @property
    def exit_code(self) -> int:
        """130 if interrupted, 1 if any cell failed, timed out or is not there, else 0."""
        if self.interrupted:
            return 130
        good = self.counts["done"] + self.counts["skipped"]
        return 0 if good == self.counts.total() else 1

    def __str__(self) -> str:
        order = ("done", "failed", "skipped", "timeout", "out of date", "missing")
        parts = [f"{self.counts[state]} {state}" for state in order if self.counts[state]]
        return f"{self.counts.total()} cells: {', '.join(parts)}"


def run_study(
    spec: Spec,
    out: Path,
    *,
    only: Sequence[str] = (),
    engine: str | Engine = "processes",
    fresh: bool = False,
    command: str = "",
    console: Console | None = None,
) -> Outcome:
    """Run the cells of `spec` that `only` leaves and that `out` does not have up to date.

    With `fresh`, what is stored of them is forgotten first. Ctrl-C ends the run; what is stored by
    then stays, and the next run goes on from there. `engine` is a name, or a function that runs jobs.
    """
    console = Console(stderr=True) if console is None else console
    run, address = engine_of(engine) if isinstance(engine, str) else (engine, None)
    jobs = plan(spec, only)
    store = Store(out).create()
    with directory_lock(out):
        store.write_manifest(
            jobs, spec=_plain(spec, only), environment=current_environment(), command=command
        )
        if fresh:
            for job in jobs:
                store.remove(job.cell)
        todo = store.missing(jobs, current_environment())
        listener = StudyProgress(len(todo), console)
        listener.note(f"{spec.title}: {_count(jobs, todo)}; results in {out}")
        interrupted = False
        try:
            with listener:
                if todo:
                    run(todo, store, listener, address)
        except KeyboardInterrupt:
            interrupted = True
            listener.note("interrupted; the same command goes on from here")
        store.sweep()
        counts = Counter(
            store.state(Planned(j.cell, j.fingerprint), current_environment()) for j in jobs
        )
        return Outcome(counts, len(todo), interrupted)


def _count(jobs: Sequence[CellJob], todo: Sequence[CellJob]) -> str:
    stored = len(jobs) - len(todo)
    known = f", {stored} stored already" if stored else ""
    return f"{len(jobs)} cells{known}, {len(todo)} to run"


def _plain(spec: Spec, only: Sequence[str]) -> dict[str, Any]:
    module = None if spec.module is None else spec.module.name
    chapter = None
    if spec.chapter is not None and spec.chapter.resolve().is_relative_to(CHECKOUT):
        chapter = spec.chapter.resolve().relative_to(CHECKOUT).as_posix()
    return {**dataclasses.asdict(spec), "module": module, "chapter": chapter, "only": list(only)}
