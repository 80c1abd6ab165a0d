"""A study in processes that can be killed, and what must hold of its results afterwards."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from quietgrad.study.records import Record, read_record
from quietgrad.study.store import Store

ROOT = Path(__file__).parents[2]
# Loading a task takes a while, so that there is a middle to be killed in; one may hang, in a worker.
MODELS = """
import multiprocessing
import time
from pathlib import Path

import jax.numpy as jnp
from quietgrad.targets import Target


def slow(centre, seconds):
    def load():
        time.sleep(seconds)
        hangs = Path(__file__).with_name(f"{centre:g}-hangs")
        while multiprocessing.parent_process() is not None and hangs.exists():
            time.sleep(0.1)
        return Target.from_logdensity(lambda z: -0.5 * jnp.sum((z - centre) ** 2), dim=2)

    return load


TASKS = {f"task{place}": slow(float(place), SECONDS) for place in range(TASKS)}
"""
SPEC = """
[study]
module = "models.py"
timeout = TIMEOUT
untimed = UNTIMED

[[grid]]
tasks = [TASKS]
families = ["mean-field"]
estimators = ["nocv"]
draws = [2]
steps = 20
evaluate_every = 10
elbo_draws = 20

# Needs the moments of q, which a flow does not have: skipped, with a reason.
[[grid]]
tasks = ["task0"]
families = ["real-nvp"]
estimators = ["taylor"]
"""
# One process instead of two, for runs that nobody kills.
IN_ONE = ("--engine", "inprocess")


def environment(folder: Path, **more: str) -> dict[str, str]:
    """One thread and few optimisations; compiled programs, locks and caches apart from all else."""
    own = {
        "PYTHONPATH": str(ROOT / "src"),
        "TMPDIR": str(folder),
        "GIT_DIR": str(folder / "no-repository"),  # a commit during the test changes nothing
        "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PJRT_NPROC": "1",
        "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0",
    }
    return {**os.environ, **own, **more}


def command(
    folder: Path, *, tasks: int, seconds: float, timeout: float = 600.0, untimed: bool = False
) -> list[str]:
    """The command that runs a study of this many tasks; one more cell is skipped."""
    names = ", ".join(f'"task{place}"' for place in range(tasks))
    spec = SPEC.replace("[TASKS]", f"[{names}]").replace("TIMEOUT", f"{timeout:g}")
    models = MODELS.replace("SECONDS", f"{seconds:g}").replace("range(TASKS)", f"range({tasks})")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "models.py").write_text(models)
    (folder / "slow.toml").write_text(spec.replace("UNTIMED", str(untimed).lower()))
    return [sys.executable, "-m", "quietgrad", "study", str(folder / "slow.toml"), "--no-report"]


def results(out: Path) -> dict[str, Record]:
    """The stored records by name."""
    return {record.cell.name: record for record in Store(out).read_all()}


def same(found: dict[str, Record], expected: dict[str, Record]) -> None:
    """Every cell once, and every number of it, the clock's apart, the same."""
    assert found.keys() == expected.keys()
    for name, record in found.items():
        assert (record.status, record.reason) == (expected[name].status, expected[name].reason)
        same_numbers(record, expected[name])


def same_numbers(record: Record, expected: Record) -> None:
    """The same bits of all that does not come from a clock."""
    assert record.columns.keys() == expected.columns.keys()
    for column in set(record.columns) - {"seconds"}:
        np.testing.assert_array_equal(record.column(column), expected.column(column))
    timeless = ("fingerprint", "elbo", "elbo_error", "judge_offset", "fit_status", "hint", "steps")
    for name in timeless:
        assert record.outcome.get(name) == expected.outcome.get(name), name
    assert record.seed == expected.seed


def files(out: Path) -> list[Path]:
    """The cells that are stored."""
    return list((out / "cells").glob("*.parquet"))


def stamps(out: Path) -> dict[str, int]:
    """When each cell was written."""
    return {path.name: path.stat().st_mtime_ns for path in files(out)}


def good_stamps(out: Path, expected: dict[str, Record]) -> dict[str, int]:
    """When each finished cell was written; each file must be whole, and as it would be undisturbed."""
    found = {}
    for path in files(out):
        written, record = path.stat().st_mtime_ns, read_record(path)
        if record.status == expected[record.cell.name].status:
            same_numbers(record, expected[record.cell.name])
            found[path.name] = written
    return found


def wait_for_cells(out: Path, process: subprocess.Popen, least: int = 1) -> None:
    """Until this many cells are stored."""
    while len(files(out)) < least:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)


@contextlib.contextmanager
def running(*arguments: object, env: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A module in a process of its own, which is killed at the end."""
    process = subprocess.Popen([sys.executable, "-m", *map(str, arguments)], env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def scheduler(folder: Path, env: dict[str, str]) -> Iterator[str]:
    """A Dask scheduler; its address."""
    file = folder / "scheduler.json"
    start = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    with running(*start, "--scheduler-file", file, env=env):
        while not file.exists():
            time.sleep(0.05)
        yield file.read_text().split('"address": "')[1].split('"')[0]


def worker(address: str, folder: Path, env: dict[str, str]):
    """A Dask worker without a nanny, so that whoever kills it kills it."""
    start = ("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard")
    return running(*start, "--host", "127.0.0.1", "--local-directory", folder, env=env)
