"""One cell of a study on disk: a parquet file of evaluations, with everything else in its metadata.

No pickle, no jax: reports are built from these files alone.
"""

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FORMAT = 1
COLUMNS = (
    "step",
    "seconds",
    "elbo",
    "elbo_error",
    "variance",
    "variance_ratio",
    "variance_ratio_error",
    "lppd",
)
STATUSES = ("done", "failed", "skipped", "timeout")


@dataclasses.dataclass(frozen=True)
class Cell:
    """What was run. `label` names the estimator with its settings, e.g. "zvcv-gd order 2"."""

    task: str
    family: str
    estimator: str
    label: str
    draws: int
    rep: int
    steps: int
    learning_rate: float
    batch_size: int | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    group: str = "main"

    @property
    def name(self) -> str:
        """A readable name, unique in a study."""
        parts = (self.group, self.task, self.family, self.label, f"L{self.draws}", f"rep{self.rep}")
        return "/".join(parts)


@dataclasses.dataclass(frozen=True)
class Record:
    """A cell and what came of it.

    `status` is one of `STATUSES`, `reason` says why for all but "done". `columns` maps the names in
    `COLUMNS` to equally long arrays with NaN where a quantity was not evaluated; `outcome` holds
    scalars: final "elbo", "elbo_error", "compile_seconds", "fit_status", "hint", "dim".
    """

    cell: Cell
    status: str
    reason: str
    columns: Mapping[str, np.ndarray]
    outcome: Mapping[str, Any]
    environment: Mapping[str, Any]
    seed: int

    def column(self, name: str) -> np.ndarray:
        """One column, as floats."""
        return np.asarray(self.columns[name], dtype=float)


def write_record(path: Path, record: Record) -> None:
    """Write atomically: a reader sees the whole file or none."""
    if record.status not in STATUSES:
        raise ValueError(f"unknown status {record.status!r}; known: {', '.join(STATUSES)}")
    length = max((len(column) for column in record.columns.values()), default=0)
    empty = np.full(length, math.nan)
    table = pa.table({name: np.asarray(record.columns.get(name, empty), float) for name in COLUMNS})
    about = {
        "format": FORMAT,
        "cell": dataclasses.asdict(record.cell),
        "status": record.status,
        "reason": record.reason,
        "outcome": dict(record.outcome),
        "environment": dict(record.environment),
        "seed": record.seed,
    }
    table = table.replace_schema_metadata({"quietgrad": json.dumps(about)})
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        pq.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def read_record(path: Path) -> Record:
    """Read one cell back; a file of another format is refused with a message that says so."""
    table = pq.read_table(path)
    raw = (table.schema.metadata or {}).get(b"quietgrad")
    about = json.loads(raw) if raw else {}
    if about.get("format") != FORMAT:
        raise ValueError(
            f"{path.name} has results format {about.get('format')!r}; this version reads {FORMAT}"
        )
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    return Record(
        cell=Cell(**about["cell"]),
        status=about["status"],
        reason=about["reason"],
        columns=columns,
        outcome=about["outcome"],
        environment=about["environment"],
        seed=about["seed"],
    )
