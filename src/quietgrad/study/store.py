"""A study on disk: `manifest.json`, and one parquet file for each finished cell in `cells/`.

Workers write their own cells, each in one atomic move, so whatever is killed leaves whole files only,
and what is missing is known from the directory alone. No jax: reports and `status` use this.
"""

import datetime
import json
import math
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._util.files import replacing
from .jobs import CellJob, digest
from .records import FORMAT, READABLE, Cell, Record, read_record, write_record

# A stored record is out of date if it was made with another value of one of these.
IDENTITY = ("quietgrad", "commit", "precision")
AGAIN = ("failed", "timeout")
TEMPORARY_SECONDS = 3600.0


@dataclass(frozen=True)
class Planned:
    """A cell that the study should have, and the fingerprint that its record should carry.

    `study` is the name of the spec it comes from; a directory may hold cells of several.
    """

    cell: Cell
    fingerprint: str
    study: str = ""


class Store:
    """The results directory of a study."""

    def __init__(self, root: Path | str):
        self.root = Path(root)

    @property
    def cells(self) -> Path:
        """Where the cells are."""
        return self.root / "cells"

    def create(self) -> "Store":
        """Make the directory if need be, and sweep it."""
        self.cells.mkdir(parents=True, exist_ok=True)
        self.sweep()
        return self

    def sweep(self) -> None:
        """Clear what killed writers left half done: what is old, or older than the cell it was to be."""
        leftovers = list(self.cells.glob(".*.tmp"))
        now = _now(self.cells) if leftovers else math.nan
        for leftover in leftovers:
            written = _time(leftover)
            cell = self.cells / leftover.name[1:].rsplit(".", 2)[0]
            if now - written > TEMPORARY_SECONDS or written < _time(cell):
                leftover.unlink(missing_ok=True)

    def path(self, cell: Cell) -> Path:
        """The file of a cell: readable, safe for every file system, one for each name."""
        safe = re.sub(r"[^A-Za-z0-9.]+", "-", cell.name.replace("/", "--")).strip("-")
        return self.cells / f"{safe[:120]}-{digest(cell.name)[:8]}.parquet"

    def write(self, record: Record) -> None:
        """Store a record in place of any earlier one of the same cell."""
        write_record(self.path(record.cell), record)

    def read(self, cell: Cell) -> Record | None:
        """The record of a cell; None if there is none, or a broken one."""
        return _read(self.path(cell))

    def remove(self, cell: Cell) -> None:
        """Forget the record of a cell."""
        self.path(cell).unlink(missing_ok=True)

    def read_all(self) -> list[Record]:
        """Every record that can be read, in the order of the manifest and then of names."""
        order = {planned.cell.name: place for place, planned in enumerate(self.planned())}
        records = [record for file in self.cells.glob("*.parquet") if (record := _read(file))]
        return sorted(records, key=lambda r: (order.get(r.cell.name, len(order)), r.cell.name))

    def missing(self, jobs: Iterable[CellJob], environment: Mapping[str, Any]) -> list[CellJob]:
        """The jobs without an up-to-date record, or whose record says that they failed or timed out."""
        return [
            job
            for job in jobs
            if self.state(Planned(job.cell, job.fingerprint), environment)
            in ("missing", "out of date", *AGAIN)
        ]

    def state(self, planned: Planned, environment: Mapping[str, Any]) -> str:
        """ "missing", "out of date", or the status of the record."""
        record = self.read(planned.cell)
        if record is None:
            return "missing"
        same = record.outcome.get("fingerprint") == planned.fingerprint and all(
            record.environment.get(name) == environment.get(name)
            for name in IDENTITY
            if name in environment
        )
        return record.status if same else "out of date"

    def count(self) -> Counter[str]:
        """How many of the planned cells are in which state, by the environment of their last run."""
        about = self.manifest()
        own = {each["name"]: each["environment"] for each in studies(about)}
        return Counter(
            self.state(planned, own.get(planned.study, about["environment"]))
            for planned in self.planned()
        )

    def planned(self) -> list[Planned]:
        """The cells of the manifest."""
        if not (self.root / "manifest.json").exists():
            return []
        return [
            Planned(Cell(**entry["cell"]), entry["fingerprint"], entry.get("study", ""))
            for entry in self.manifest()["cells"]
        ]

    def manifest(self) -> dict[str, Any]:
        """What is known about the study as a whole."""
        path = self.root / "manifest.json"
        if not path.exists():
            raise FileNotFoundError(f"{self.root} is not the results directory of a study")
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(
                f"{path} is not a manifest ({error}); move it away, and the same study command makes a "
                "new one and keeps the cells"
            ) from error
        if not isinstance(about, dict):
            raise ValueError(f"{path} is not a manifest; it holds a {type(about).__name__}")
        if about.get("format") not in READABLE:
            known = " and ".join(map(str, READABLE))
            raise ValueError(f"{path} has format {about.get('format')!r}; this version reads {known}")
        return about

    def write_manifest(
        self,
        jobs: Sequence[CellJob],
        *,
        spec: Mapping[str, Any],
        environment: Mapping[str, Any],
        command: str,
    ) -> None:
        """Add these jobs to what the directory should have; earlier cells of other names stay.

        The first study of a directory gives it its name; specs of other names are kept beside it.
        """
        name = spec["name"]
        known = {planned.cell.name: planned for planned in self.planned()}
        known |= {job.cell.name: Planned(job.cell, job.fingerprint, name) for job in jobs}
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        before = self.manifest() if (self.root / "manifest.json").exists() else {"created": now}
        mine = {"name": name, "command": command, "spec": dict(spec), "environment": dict(environment)}
        every = {each["name"]: each for each in studies(before)} | {name: mine}
        first, *others = every.values()
        document = {
            "format": FORMAT,
            "created": before["created"],
            "updated": now,
            **first,
            "further": others,
            "cells": [
                {"cell": vars(p.cell), "fingerprint": p.fingerprint, "study": p.study}
                for p in known.values()
            ],
        }
        with replacing(self.root / "manifest.json") as file:
            file.write(json.dumps(document, indent=1, default=str).encode())


def studies(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was run into a directory, the first study first: name, command, spec and environment."""
    keys = ("name", "command", "spec", "environment")
    first = {key: manifest[key] for key in keys if key in manifest}
    return [*([first] if "name" in first else []), *manifest.get("further", [])]


def _now(folder: Path) -> float:
    """The present moment by the clock that dates the files of a folder: a server's may be another."""
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.fstat(file.fileno()).st_mtime


def _time(path: Path) -> float:
    """When a file was written; never, if it is not there (any more)."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return -math.inf


def _read(path: Path) -> Record | None:
    """A broken file counts as none: the cell is run again and the file replaced."""
    try:
        return read_record(path)
    except (OSError, ValueError, KeyError, TypeError):
        return None
