"""A study on disk, read for a report: its records and what its manifest says about them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..study.clock import Clock, clock_of
from ..study.records import Cell, Record
from ..study.store import Store, studies
from ..study.summary import finished
from ..study.timing import Timing, read_records, read_timing
from . import names


@dataclass(frozen=True)
class StoredStudy:
    """All records of a directory (finished or not), and the manifest as it was written.

    `missing` names the cells that the manifest plans and that have not been run. `timing` is the timing
    pass, if there was one; the records have their seconds from it already.
    """

    directory: Path
    records: Sequence[Record]
    manifest: Mapping[str, Any]
    missing: Sequence[str] = ()
    timing: Timing | None = None

    @property
    def name(self) -> str:
        """What the study is called on the command line."""
        return str(self.manifest.get("name") or self.directory.name)

    @property
    def title(self) -> str:
        """What it is called on its page."""
        spec = self.manifest.get("spec")
        return str((spec.get("title") if isinstance(spec, dict) else None) or self.name)

    @property
    def description(self) -> str:
        """What its spec says about it."""
        spec = self.manifest.get("spec")
        return str(spec.get("description", "")) if isinstance(spec, dict) else ""

    @property
    def done(self) -> list[Record]:
        """The records with results."""
        return finished(self.records)

    @property
    def main(self) -> list[Record]:
        """The finished records of the main grid, without the ablations."""
        return [record for record in self.done if record.cell.group == "main"]

    @property
    def timed(self) -> bool:
        """Whether any run of the main grid has a clock."""
        return any(clock_of(record) is not Clock.NONE for record in self.main)

    @property
    def specs(self) -> list[Mapping[str, Any]]:
        """The specs that were run into the directory."""
        return [each["spec"] for each in studies(self.manifest) if isinstance(each.get("spec"), dict)]

    @property
    def environments(self) -> list[Mapping[str, Any]]:
        """The different environments in which cells were run, most frequent first."""
        texts = [json.dumps(dict(record.environment), sort_keys=True) for record in self.records]
        order = sorted(dict.fromkeys(texts), key=lambda text: -texts.count(text))
        return [json.loads(text) for text in order]

    def simulated(self, task: str) -> bool:
        """Whether the data of a task is not real, by its records or by its name."""
        runs = (record for record in self.records if record.cell.task == task)
        return task in names.SIMULATED or any(run.outcome.get("simulated") for run in runs)

    def task_name(self, task: str) -> str:
        """What a task is called above a panel; data that is not real says so."""
        first, comma, rest = names.task_name(task).partition(", ")
        return first + (" (simulated)" if self.simulated(task) else "") + comma + rest

    def tasks(self) -> list[str]:
        """Names of the tasks in the main grid, the paper's first."""
        return names.in_order((record.cell.task for record in self.main), names.TASKS)

    def families(self) -> list[str]:
        """Names of the families in the main grid."""
        return names.in_order((record.cell.family for record in self.main), names.FAMILIES)

    def draws(self) -> list[int]:
        """Numbers of draws in the main grid."""
        return [count for count in draws_of(self.main) if count is not None]


def draws_of(runs: Iterable[Record]) -> list[int | None]:
    """Numbers of draws, a row of panels for each; [None] if all rows are of methods without any."""
    known = sorted({run.cell.draws for run in runs if run.cell.draws is not None})
    return [*known] or [None]


def has_draws(cell: Cell, count: int | None) -> bool:
    """Whether a cell belongs to the panels of this number of draws; methods belong to all."""
    return cell.draws in (count, None)


def load(directory: Path) -> StoredStudy:
    """Read every cell in `directory`; a directory without any is an error that says so."""
    store = Store(directory)
    records = read_records(directory)
    if not records:
        raise FileNotFoundError(
            f"no results in {directory}: expected cells/*.parquet as `quietgrad study` writes them"
        )
    manifest = store.manifest() if (directory / "manifest.json").exists() else {}
    there = {record.cell.name for record in records}
    planned = (planned.cell.name for planned in store.planned())
    missing = [name for name in planned if name not in there]
    return StoredStudy(directory, records, manifest, missing, read_timing(directory))
