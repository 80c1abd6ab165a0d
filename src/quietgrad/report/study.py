"""A study on disk, read for a report: its records and what its manifest says about them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..study.records import Record, read_record
from ..study.summary import finished
from . import names


@dataclass(frozen=True)
class Study:
    """All records of a directory (finished or not), and the manifest as it was written."""

    directory: Path
    records: Sequence[Record]
    manifest: Mapping[str, Any]

    @property
    def done(self) -> list[Record]:
        """The records with results."""
        return finished(self.records)

    @property
    def main(self) -> list[Record]:
        """The finished records of the main grid, without the ablations."""
        return [record for record in self.done if record.cell.group == "main"]

    @property
    def environments(self) -> list[Mapping[str, Any]]:
        """The different environments in which cells were run, most frequent first."""
        texts = [json.dumps(dict(record.environment), sort_keys=True) for record in self.records]
        order = sorted(dict.fromkeys(texts), key=lambda text: -texts.count(text))
        return [json.loads(text) for text in order]

    def tasks(self) -> list[str]:
        """Names of the tasks in the main grid, the paper's first."""
        return names.in_order((record.cell.task for record in self.main), names.TASKS)

    def families(self) -> list[str]:
        """Names of the families in the main grid."""
        return names.in_order((record.cell.family for record in self.main), names.FAMILIES)

    def draws(self) -> list[int]:
        """Numbers of draws in the main grid."""
        return sorted({record.cell.draws for record in self.main})


def load(directory: Path) -> Study:
    """Read every cell below `directory`; a directory without cells is an error that says so."""
    files = sorted((directory / "cells").glob("*.parquet"))
    if not files:
        raise FileNotFoundError(
            f"no results in {directory}: expected cells/*.parquet as `quietgrad study` writes them"
        )
    manifest = directory / "manifest.json"
    about = json.loads(manifest.read_text()) if manifest.exists() else {}
    records = sorted((read_record(file) for file in files), key=lambda record: record.cell.name)
    return Study(directory, records, about)
