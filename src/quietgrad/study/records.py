"""One cell of a study on disk: a parquet file of evaluations, with everything else in its metadata.

No pickle, no jax: reports are built from these files alone. Format 2 has rows of any method; format 1
had estimators under Adam only, and is read as method "sgd".
"""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from .._util.extras import needs_extra
from .._util.files import replacing

with needs_extra("study", "a study"):
    import pyarrow as pa
    import pyarrow.parquet as pq

FORMAT = 2
READABLE = (1, 2)
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
# What evaluated the ELBOs of format 1, which did not say so.
FIRST_JUDGE = "independent draws, fresh at every evaluation, shared by the estimators of a repetition"


@dataclasses.dataclass(frozen=True)
class Cell:
    """What was run. `label` is its name in tables and figures, e.g. "zvcv-gd order 2".

    A row of `estimators` is the method "sgd" with that estimator: Adam at `learning_rate` for `steps`
    steps of `draws` draws, and `settings` are the estimator's. A row of `methods` has the method's own
    `settings`; its `estimator`, `draws` and `learning_rate` are None, and so are its `steps` unless
    they were given.
    """

    task: str
    family: str
    estimator: str | None
    label: str
    draws: int | None
    rep: int
    steps: int | None
    learning_rate: float | None
    batch_size: int | None = None
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    group: str = "main"
    method: str = "sgd"

    @property
    def name(self) -> str:
        """A readable name, unique in a study."""
        draws = [] if self.draws is None else [f"L{self.draws}"]
        return "/".join([self.group, self.task, self.family, self.label, *draws, f"rep{self.rep}"])

    @property
    def ends_itself(self) -> bool:
        """Whether the method decides when it is done, and what a step of it costs varies."""
        return self.method != "sgd"


@dataclasses.dataclass(frozen=True)
class Record:
    """A cell and what came of it.

    `status` is one of `STATUSES`, `reason` says why for all but "done". `columns` maps the names in
    `COLUMNS` to equally long arrays with NaN where a quantity was not evaluated; `outcome` holds
    scalars: final "elbo", "elbo_error", "compile_seconds", "fit_status", "hint", "dim", "judge", which
    says how the ELBOs were evaluated, and "judge_offset", what the judge's draws err by at the answer.
    """

    cell: Cell
    status: str
    reason: str
    columns: Mapping[str, np.ndarray]
    outcome: Mapping[str, Any]
    environment: Mapping[str, Any]
    seed: int

    @property
    def elbo(self) -> np.ndarray:
        """The column "elbo", less what the judge's draws err by at the run's answer.

        That makes ELBOs comparable between repetitions, which have draws of their own.
        """
        return self.column("elbo") - float(self.outcome.get("judge_offset", 0.0))

    def column(self, name: str) -> np.ndarray:
        """One column, as floats; all NaN if it is not there."""
        length = max((len(column) for column in self.columns.values()), default=0)
        return np.asarray(self.columns.get(name, np.full(length, math.nan)), dtype=float)


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
    with replacing(path) as file:
        pq.write_table(table, file)


def read_record(path: Path) -> Record:
    """Read one cell back; a format that is not known is refused with a message that says so."""
    table = pq.read_table(path)
    raw = (table.schema.metadata or {}).get(b"quietgrad")
    about = json.loads(raw) if raw else {}
    if about.get("format") not in READABLE:
        raise ValueError(
            f"{path.name} has results format {about.get('format')!r}; "
            f"this version reads {' and '.join(map(str, READABLE))}"
        )
    outcome = about["outcome"]
    if about["format"] == 1:
        outcome = {"judge": FIRST_JUDGE, **outcome}
    return Record(
        cell=Cell(**about["cell"]),
        status=about["status"],
        reason=about["reason"],
        columns={name: table.column(name).to_numpy() for name in table.column_names},
        outcome=outcome,
        environment=about["environment"],
        seed=about["seed"],
    )
