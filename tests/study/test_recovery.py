"""Kill -9 in the middle of a study: a rerun completes it, and every number is the same."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from quietgrad.study.store import Store

ROOT = Path(__file__).parents[2]
# Loading a task takes a while, so that there is a middle to be killed in.
MODELS = """
import time
import jax.numpy as jnp
from quietgrad.targets import Target


def slow(centre):
    def load():
        time.sleep(0.5)
        return Target.from_logdensity(lambda z: -0.5 * jnp.sum((z - centre) ** 2), dim=2)

    return load


TASKS = {name: slow(float(place)) for place, name in enumerate(("one", "two", "three", "four"))}
"""
SPEC = """
[study]
module = "models.py"

[[grid]]
tasks = ["one", "two", "three", "four"]
families = ["mean-field"]
estimators = ["nocv"]
draws = [2]
steps = 20
evaluate_every = 10
elbo_draws = 20

# Needs the moments of q, which a flow does not have: skipped, with a reason.
[[grid]]
tasks = ["four"]
families = ["real-nvp"]
estimators = ["taylor"]
"""
CELLS = 5
# One process instead of two, for runs that nobody kills.
IN_ONE = ("--engine", "inprocess")
HEEDING_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """One thread and few optimisations; compiled programs, locks and caches apart from all else."""
    folder = tmp_path_factory.mktemp("recovery")
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
    return {**os.environ, **own}


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spec")
    (folder / "models.py").write_text(MODELS)
    (folder / "slow.toml").write_text(SPEC)
    return [sys.executable, "-m", "quietgrad", "study", str(folder / "slow.toml"), "--no-report"]


@pytest.fixture(scope="module")
def undisturbed(environment, command, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    subprocess.run([*command, "--out", out, *IN_ONE], env=environment, check=True)
    return results(out)


def results(out):
    return {record.cell.name: record for record in Store(out).read_all()}


def same(found, expected):
    assert len(expected) == CELLS
    assert found.keys() == expected.keys()
    for name, record in found.items():
        assert (record.status, record.reason) == (expected[name].status, expected[name].reason)
        assert record.columns.keys() == expected[name].columns.keys()
        for column in set(record.columns) - {"seconds"}:
            np.testing.assert_array_equal(record.column(column), expected[name].column(column))


def wait_for_cells(out, process, least=1):
    while len(list((out / "cells").glob("*.parquet"))) < least:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)


def stamps(out):
    return {path.name: path.stat().st_mtime_ns for path in (out / "cells").glob("*.parquet")}


def test_a_killed_coordinator(environment, command, undisturbed, tmp_path):
    out = tmp_path / "out"
    with subprocess.Popen([*command, "--out", out], env=environment) as process:
        wait_for_cells(out, process)
        process.send_signal(signal.SIGKILL)
    before = stamps(out)
    assert 0 < len(before) < CELLS
    subprocess.run([*command, "--out", out, *IN_ONE], env=environment, check=True)
    after = stamps(out)
    assert len(after) == CELLS
    # What was there is not run again; the orphaned worker ended with its coordinator.
    assert {name: after[name] for name in before} == before
    same(results(out), undisturbed)
    assert not list((out / "cells").glob(".*.tmp"))


def test_ctrl_c(environment, command, undisturbed, tmp_path):
    out = tmp_path / "out"
    # A shell that runs the tests in the background hands down an ignored SIGINT.
    heeding = [sys.executable, "-c", HEEDING_CTRL_C, *command, "--out", out]
    with subprocess.Popen(heeding, env=environment) as process:
        wait_for_cells(out, process)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    assert 0 < len(stamps(out)) < CELLS
    subprocess.run([*command, "--out", out, *IN_ONE], env=environment, check=True)
    same(results(out), undisturbed)


@contextlib.contextmanager
def running(*arguments, env):
    process = subprocess.Popen([sys.executable, "-m", *map(str, arguments)], env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_killed_dask_worker(environment, command, undisturbed, tmp_path):
    pytest.importorskip("distributed")
    out, file = tmp_path / "out", tmp_path / "scheduler.json"
    scheduler = ("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0")
    worker = ("distributed.cli.dask_worker", "--scheduler-file", file, "--nthreads", "1")
    worker += ("--no-nanny", "--no-dashboard", "--local-directory", tmp_path)
    with contextlib.ExitStack() as stack:
        start = (*scheduler, "--no-dashboard", "--scheduler-file", file)
        stack.enter_context(running(*start, env=environment))
        while not file.exists():
            time.sleep(0.05)
        first, _ = [stack.enter_context(running(*worker, env=environment)) for _ in range(2)]
        address = Path(file).read_text().split('"address": "')[1].split('"')[0]
        there = [*command, "--out", out, "--engine", f"dask://{address}"]
        with subprocess.Popen(there, env=environment) as process:
            wait_for_cells(out, process)
            first.send_signal(signal.SIGKILL)
            assert process.wait() == 0
    same(results(out), undisturbed)


def test_a_local_dask_cluster_whose_coordinator_is_killed(environment, command, undisturbed, tmp_path):
    pytest.importorskip("distributed")
    out = tmp_path / "out"
    with subprocess.Popen([*command, "--out", out, "--engine", "dask"], env=environment) as process:
        wait_for_cells(out, process)
        process.send_signal(signal.SIGKILL)
    subprocess.run([*command, "--out", out, *IN_ONE], env=environment, check=True)
    same(results(out), undisturbed)
