"""Kill -9 in the middle of a study: a rerun completes it, and every number is the same."""

import contextlib
import signal
import subprocess
import sys

import interruptions
import pytest
from interruptions import IN_ONE, results, same, stamps, wait_for_cells

TASKS, CELLS = 4, 5
HEEDING_CTRL_C = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return interruptions.environment(tmp_path_factory.mktemp("recovery"))


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    return interruptions.command(tmp_path_factory.mktemp("spec"), tasks=TASKS, seconds=0.25)


@pytest.fixture(scope="module")
def undisturbed(environment, command, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    subprocess.run([*command, "--out", out, *IN_ONE], env=environment, check=True)
    found = results(out)
    assert len(found) == CELLS
    return found


@pytest.mark.chaos
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


@pytest.mark.chaos
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


@pytest.mark.chaos
def test_a_killed_dask_worker(environment, command, undisturbed, tmp_path):
    pytest.importorskip("distributed")
    out = tmp_path / "out"
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(interruptions.scheduler(tmp_path, environment))
        first, _ = [
            stack.enter_context(interruptions.worker(address, tmp_path, environment)) for _ in range(2)
        ]
        there = [*command, "--out", out, "--engine", f"dask://{address}"]
        with subprocess.Popen(there, env=environment) as process:
            wait_for_cells(out, process)
            first.send_signal(signal.SIGKILL)
            assert process.wait() == 0
    same(results(out), undisturbed)


@pytest.mark.chaos
def test_a_local_dask_cluster_whose_coordinator_is_killed(environment, command, undisturbed, tmp_path):
    pytest.importorskip("distributed")
    out = tmp_path / "out"
    with subprocess.Popen([*command, "--out", out, "--engine", "dask"], env=environment) as process:
        wait_for_cells(out, process)
        process.send_signal(signal.SIGKILL)
    subprocess.run([*command, "--out", out, *IN_ONE], env=environment, check=True)
    same(results(out), undisturbed)
