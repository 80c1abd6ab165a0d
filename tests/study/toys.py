"""A user's own models and estimators, small enough that compiling them is all the work there is."""

import dataclasses
import functools
from pathlib import Path

import numpy as np
from rich.console import Console

from quietgrad._util.environment import current_environment
from quietgrad.study.jobs import CellJob
from quietgrad.study.plan import plan
from quietgrad.study.read_spec import parse
from quietgrad.study.records import Record
from quietgrad.study.runner import Outcome, run_study
from quietgrad.study.spec import Spec
from quietgrad.study.store import Store

MODELS = """
import os
import signal
import time

import jax.numpy as jnp
from quietgrad.estimators import AbstractEstimator, Pathwise
from quietgrad.targets import Target
from quietgrad.datasets.tasks import Task

def log_density(z):
    return -0.5 * jnp.sum((z - 1.0) ** 2)


def explosive(z):
    return jnp.exp(jnp.sum(z**2) * 50.0)


def rows():
    x = jnp.linspace(-1.0, 1.0, 12)
    target = Target(lambda z: -jnp.sum(z**2), lambda z, x: -((x - z[0]) ** 2) * z[1], x, dim=2)
    about = {"title": "rows", "test": None, "batch_size": 4, "simulated": True, "real_nvp_rate": 0.01}
    return Task("rows", train=target, dim=2, **about)


class Odd(AbstractEstimator):
    inner: Pathwise
    deed: object

    @property
    def biased(self):
        return False

    def refuses(self, target, q):
        return "it is odd, and so it goes" if self.deed is None else None

    def _init(self, target, q):
        return self.inner.init(target, q)

    def step(self, target, q, state, *, key):
        self.deed()
        return self.inner.step(target, q, state, key=key)


def odd(deed):
    return lambda *, draws: Odd(Pathwise(draws=draws), deed)


def fail():
    raise RuntimeError("no luck today")


def crash():
    os.kill(os.getpid(), signal.SIGKILL)


def hang():
    time.sleep(600)


TASKS = {
    "gauss": lambda: Target.from_logdensity(log_density, dim=2),
    "explosive": lambda: Target.from_logdensity(explosive, dim=2),
    "rows": rows,
}
ESTIMATORS = {"fails": odd(fail), "crashes": odd(crash), "hangs": odd(hang), "odd": odd(None)}
"""

SPEC = """
[study]
title = "A user's own study"
module = "my_models.py"

[[grid]]
tasks = ["gauss"]
families = ["mean-field"]
estimators = ["nocv", "stl"]
draws = [2]
reps = 2
steps = 20
evaluate_every = 10
elbo_draws = 20
"""


def spec(folder: Path, text: str = SPEC, **changes: object) -> Spec:
    """The study in `text`, with the models beside it; `changes` go to every grid."""
    (folder / "my_models.py").write_text(MODELS)
    (folder / "own.toml").write_text(text)
    made = parse(text, "own", folder)
    return dataclasses.replace(
        made, grids=tuple(dataclasses.replace(grid, **changes) for grid in made.grids)
    )


def jobs(folder: Path, text: str = SPEC, **changes: object) -> list[CellJob]:
    return plan(spec(folder, text, **changes))


def run(made: Spec, folder: Path, **settings: object) -> Outcome:
    quiet = Console(stderr=True, quiet=True)
    return run_study(made, folder / "out", console=quiet, **settings)


@functools.cache
def environment() -> dict[str, object]:
    return current_environment()


def fake(job: CellJob, status: str = "done", **environment_changes: object) -> Record:
    """A record as if the job had been run."""
    outcome = {"fingerprint": job.fingerprint, "elbo": -1.0}
    values = {"step": [0.0, 1.0], "seconds": [0.0, 0.1], "elbo": [-2.0, -1.0]}
    columns = {name: np.array(column) for name, column in values.items()}
    changed = {**environment(), **environment_changes}
    return Record(job.cell, status, "", columns, outcome, changed, job.seed)


def changed(record: Record, **outcome: object) -> Record:
    """The record with another outcome."""
    return dataclasses.replace(record, outcome={**record.outcome, **outcome})


def stored(folder: Path) -> dict[str, Record]:
    return {record.cell.name: record for record in Store(folder / "out").read_all()}
