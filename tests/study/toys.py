"""A user's own models and estimators, small enough that compiling them is all the work there is."""

import dataclasses
import functools
from pathlib import Path

import numpy as np
from rich.console import Console

from quietgrad.study.cells import plan
from quietgrad.study.jobs import Job
from quietgrad.study.records import Record
from quietgrad.study.run_cell import here
from quietgrad.study.runner import Outcome, run_study
from quietgrad.study.spec import Spec, parse
from quietgrad.study.store import Store

MODELS = """
import os
import signal
import time

import jax.numpy as jnp
from quietgrad.estimators import AbstractEstimator, Pathwise
from quietgrad.targets import Target

TRACES = [0]


def log_density(z):
    TRACES[0] += 1
    return -0.5 * jnp.sum((z - 1.0) ** 2)


def explosive(z):
    return jnp.exp(jnp.sum(z**2) * 50.0)


class Odd(AbstractEstimator):
    inner: Pathwise
    deed: object

    @property
    def biased(self):
        return False

    def supports(self, target, q):
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


def jobs(folder: Path, text: str = SPEC, **changes: object) -> list[Job]:
    return plan(spec(folder, text, **changes))


def run(made: Spec, folder: Path, **settings: object) -> Outcome:
    quiet = Console(stderr=True, quiet=True)
    return run_study(made, folder / "out", console=quiet, **settings)


@functools.cache
def environment() -> dict[str, object]:
    return here()


def fake(job: Job, status: str = "done", **environment_changes: object) -> Record:
    """A record as if the job had been run."""
    outcome = {"fingerprint": job.fingerprint, "elbo": -1.0}
    values = {"step": [0.0, 1.0], "seconds": [0.0, 0.1], "elbo": [-2.0, -1.0]}
    columns = {name: np.array(column) for name, column in values.items()}
    changed = {**environment(), **environment_changes}
    return Record(job.cell, status, "", columns, outcome, changed, job.seed)


def stored(folder: Path) -> dict[str, Record]:
    return {record.cell.name: record for record in Store(folder / "out").read_all()}
