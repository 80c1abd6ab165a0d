"""A cell with all that is needed to run it, in plain values, and the seeds that its rivals share."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .records import Cell, Record


@dataclass(frozen=True)
class EvaluationSchedule:
    """When and how a cell is evaluated; the fields are those of `Grid`."""

    evaluate_every: int
    elbo_draws: int
    variance_every: int
    variance_repeats: int
    lppd_every: int
    lppd_draws: int
    light_evaluation: bool

    @property
    def judge(self) -> str:
        """How ELBOs are evaluated, for the record."""
        return (
            f"{self.elbo_draws} draws in antithetic pairs, on all rows of the data; the same at every "
            "evaluation and for all that ran in a repetition; many others for the final answer"
        )


@dataclass(frozen=True)
class CellJob:
    """A cell and all that is needed to run it, in plain values: what coordinators send to workers."""

    cell: Cell
    schedule: EvaluationSchedule
    seed: int
    timeout: float = 3600.0
    timed: bool = True
    module: str | None = None
    module_digest: str | None = None

    @property
    def fingerprint(self) -> str:
        """Changes with whatever changes the result: a stored record with another one is out of date."""
        parts = (
            dataclasses.asdict(self.cell),
            dataclasses.asdict(self.schedule),
            self.seed,
            self.timed,
            self.module_digest,
        )
        return digest(json.dumps(parts, sort_keys=True))

    @property
    def programs(self) -> tuple:
        """Jobs for which this is equal run the same compiled programs."""
        return (*configuration(self.cell), self.schedule, self.module_digest)

    def to_json(self) -> dict[str, Any]:
        """The job as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "CellJob":
        """The job that `to_json` wrote."""
        cell, schedule = Cell(**values["cell"]), EvaluationSchedule(**values["schedule"])
        return cls(**{**values, "cell": cell, "schedule": schedule})


def configuration(cell: Cell) -> tuple:
    """What a step of a cell is; equal for cells whose steps cost the same."""
    settings = json.dumps(dict(cell.settings), sort_keys=True)
    place = (cell.task, cell.family, cell.batch_size)
    return (*place, cell.method, cell.estimator, settings, cell.draws, cell.learning_rate)


def lost(job: CellJob, reason: str, environment: Mapping[str, Any], *, timeout: bool = False) -> Record:
    """The record of a job whose process did not live to write one."""
    outcome = {"fingerprint": job.fingerprint, "timed": job.timed}
    status = "timeout" if timeout else "failed"
    return Record(job.cell, status, reason, {}, outcome, environment, job.seed)


def overdue(job: CellJob, limit: float) -> str:
    """Why a job was ended that did not end itself."""
    return f"killed after {limit:g} s (timeout {job.timeout:g} s)"


def seed_of(task: str, family: str, rep: int) -> int:
    """The seed of initial point, minibatches and draws: the same for every method, estimator and L."""
    return int(digest(f"{task}/{family}/{rep}")[:8], 16) >> 1


def digest(text: str | bytes) -> str:
    """A short hash of a text."""
    data = text.encode() if isinstance(text, str) else text
    return hashlib.blake2b(data, digest_size=16).hexdigest()
