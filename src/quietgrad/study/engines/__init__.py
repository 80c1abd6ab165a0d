"""Engines run jobs, each in its own way; whichever runs a cell writes it to the store itself.

An engine is a function of the jobs, the store, a `Listener` and an address (what follows "://" in
`--engine`, None without it). It returns when every job is stored or given up, and lets Ctrl-C through.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from ..._util.checks import lookup
from ..jobs import CellJob
from ..store import Store

# Modules with a function `run`; imported when used, for each brings its own libraries.
REGISTRY = {
    "inprocess": "one cell after another, in this process",
    "processes": "one cell after another in a process of its own, which is killed if a cell hangs",
    "dask": "on a Dask cluster: a local one, or dask://tcp://host:port",
}


@runtime_checkable
class Listener(Protocol):
    """Hears what happens, possibly from several threads."""

    def started(self, job: CellJob) -> None:
        """A job is about to run."""

    def finished(self, job: CellJob, status: str) -> None:
        """A job's record was stored."""

    def note(self, text: str) -> None:
        """Something the user may want to know."""


Engine = Callable[[Sequence[CellJob], Store, Listener, str | None], None]


def engine(name: str) -> tuple[Engine, str | None]:
    """The engine of this name, and the address in it: "processes", "dask", "dask://tcp://host:port"."""
    kind, _, address = name.partition("://")
    lookup(REGISTRY, kind, "engine")
    if address and kind != "dask":
        raise ValueError(f"only dask takes an address; got {name!r}")
    return importlib.import_module(f".{kind}", __package__).run, address or None
