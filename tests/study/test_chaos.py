"""Processes of a study that are killed, stopped and cut off at seeded moments: `pytest -m chaos`.

After each blow every file there is whole and right, and what is finished is not run again. In the end
every cell is there once, with the bits of a run that nobody disturbed.
"""

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path

import interruptions
import numpy as np
import pytest
from interruptions import IN_ONE, files, good_stamps, results, same, stamps

pytestmark = pytest.mark.chaos
pytest.importorskip("distributed")
from distributed import Client, LocalCluster  # noqa: E402

from quietgrad.study.engines import dask  # noqa: E402

SEED = 20261117
TASKS, CELL_SECONDS, START_SECONDS = 9, 0.2, 4.0
MARK = "QUIETGRAD_CHAOS"
# How a worker of each engine is told from other processes of the study.
WORKERS = {"processes": "quietgrad.study.engines.worker", "dask": "multiprocessing.spawn"}
# A worker that Dask has not heard of for so long is given up.
TTL_SECONDS = 20
# The reasons of cells that a killed worker left: the next run tries them again.
LOST = ("the process that ran it died: signal 9", "every worker that ran it died")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    more = {
        MARK: f"{os.getpid()}",
        "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": f"{TTL_SECONDS}s",
    }
    return interruptions.environment(tmp_path_factory.mktemp("chaos"), **more)


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spec")
    return interruptions.command(folder, tasks=TASKS, seconds=CELL_SECONDS, untimed=True)


@pytest.fixture(scope="module")
def undisturbed(environment, command, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed")
    subprocess.run([*command, "--out", out, *IN_ONE], env=environment, check=True)
    found = results(out)
    assert len(found) == TASKS + 1
    return found


def ours(environment, part=""):
    """Processes that this study started, itself or through others, with this in their command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            marked = f"{MARK}={environment[MARK]}".encode() in (folder / "environ").read_bytes()
            if marked and part.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def wait_for_moment(process, out, rng):
    """A random moment of a run: while it starts, or at some point of some cell."""
    further = int(rng.integers(0, 4))
    enough = len(files(out)) + further
    while further and process.poll() is None and len(files(out)) < enough:
        time.sleep(0.01)
    time.sleep(rng.uniform(0, CELL_SECONDS * 1.5 if further else START_SECONDS))


def kill_someone(process, engine, environment, rng):
    """Kill the coordinator or a worker of its; which of them, None if the study was over before."""
    workers = ours(environment, WORKERS[engine]) if engine in WORKERS else []
    if process.poll() is not None:
        return None
    if workers and rng.uniform() < 0.6:
        with contextlib.suppress(ProcessLookupError):
            os.kill(workers[int(rng.integers(len(workers)))], signal.SIGKILL)
        return "worker"
    process.kill()
    process.wait()
    return "coordinator"


@pytest.mark.parametrize(("engine", "kills"), [("inprocess", 14), ("processes", 20), ("dask", 16)])
def test_kills_at_random_moments(engine, kills, environment, command, undisturbed, tmp_path, tell):
    rng = np.random.default_rng([SEED, kills])
    struck, studies, runs, again = Counter(), 0, 0, 0
    while struck.total() < kills:
        out, complete = tmp_path / str(studies), False
        studies += 1
        while not complete:
            runs += 1
            before = good_stamps(out, undisturbed)
            with subprocess.Popen([*command, "--out", out, "--engine", engine], env=environment) as run:
                while run.poll() is None and struck.total() < kills:
                    wait_for_moment(run, out, rng)
                    struck.update(filter(None, [kill_someone(run, engine, environment, rng)]))
            after = good_stamps(out, undisturbed)
            again += sum(after.get(name) != stamp for name, stamp in before.items())
            complete = run.returncode == 0
            # A worker's death is an exit code of 1, and its cell is a row that says so.
            assert run.returncode in (0, 1, -signal.SIGKILL)
            for record in results(out).values():
                assert record.status != "failed" or record.reason.startswith(LOST)
        same(results(out), undisturbed)
        assert len(stamps(out)) == TASKS + 1
        assert not list((out / "cells").glob(".*.tmp"))
    assert again == 0
    gone_within(environment, 30.0)
    whom = ", ".join(f"{count} of a {kind}" for kind, count in sorted(struck.items()))
    tell(
        f"study by {engine}: {struck.total()} kills ({whom}) in {runs} runs of {studies} studies of "
        f"{TASKS + 1} cells; none lost, none run twice, same bits",
        kills=struck.total(),
    )


def gone_within(environment, seconds):
    """No process is left of those that were started."""
    deadline = time.monotonic() + seconds
    while ours(environment) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ours(environment) == []


def kill_all(environment, killed, seconds):
    """Kill Dask's workers as they start, for some seconds after the first."""
    deadline = None
    while deadline is None or time.monotonic() < deadline:
        for worker in set(ours(environment, WORKERS["dask"])) - killed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
            deadline = deadline or time.monotonic() + seconds
            killed.add(worker)
        time.sleep(0.01)


def test_dask_workers_that_die_while_they_start_are_replaced(
    environment, command, undisturbed, tmp_path, tell
):
    """The first ones, and in the middle those that a nanny starts again."""
    out, killed = tmp_path / "out", set()
    with subprocess.Popen([*command, "--out", out, "--engine", "dask"], env=environment) as run:
        kill_all(environment, killed, 0.1)
        while run.poll() is None and len(files(out)) < 3:
            time.sleep(0.01)
        kill_all(environment, killed, 3.0)
        assert run.wait(timeout=180) in (0, 1)
    run = subprocess.run([*command, "--out", out, "--engine", "dask"], env=environment, check=False)
    assert run.returncode == 0
    same(results(out), undisturbed)
    gone_within(environment, 30.0)
    tell("Dask workers killed while they started, again and again; others did the study")


def test_without_any_dask_worker_others_are_started():
    """As after a nanny that gave up: nobody is left, and none would come by itself."""
    settings = {"threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(n_workers=1, **settings) as cluster, Client(cluster) as client:
        cluster.scale(0)
        while client.nthreads():
            time.sleep(0.05)
        (done,) = dask._completed([client.submit(abs, -3)], client, cluster, alone_seconds=1.0)
        assert done.result() == 3


def test_a_second_coordinator_is_turned_away(environment, command, undisturbed, tmp_path, tell):
    out, rng = tmp_path / "out", np.random.default_rng(SEED)
    with subprocess.Popen([*command, "--out", out], env=environment) as first:
        wait_for_moment(first, out, rng)
        interruptions.wait_for_cells(out, first)
        # Asleep, so that it is not done before the second has looked.
        first.send_signal(signal.SIGSTOP)
        second = subprocess.run(
            [*command, "--out", out, *IN_ONE], env=environment, capture_output=True, text=True
        )
        first.send_signal(signal.SIGCONT)
        assert first.wait() == 0
    assert second.returncode == 2
    assert "another `quietgrad study` is at work" in " ".join(second.stderr.split())
    same(results(out), undisturbed)
    tell("two coordinators of one directory: the second is turned away, the first unharmed")


class Wire:
    """A connection from a worker to its scheduler, which can be cut without either being told."""

    def __init__(self, address):
        host, port = address.removeprefix("tcp://").split(":")
        self.there, self.cut, self.unheard = (host, int(port)), threading.Event(), []
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self.server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self.server.accept()[0]
                if self.cut.is_set():
                    self.unheard.append(near)
                else:
                    threading.Thread(target=self._carry, args=(near,), daemon=True).start()

    def close(self):
        for each in (self.server, *self.unheard):
            each.close()

    def _carry(self, near):
        with (
            contextlib.suppress(OSError),
            near,
            socket.create_connection(self.there) as far,
            selectors.DefaultSelector() as ready,
        ):
            ready.register(near, selectors.EVENT_READ, far)
            ready.register(far, selectors.EVENT_READ, near)
            while True:
                for source, _ in ready.select():
                    data = source.fileobj.recv(65536)
                    if not data:
                        return
                    # What is cut swallows everything, and never says that it is closed.
                    if not self.cut.is_set():
                        source.data.sendall(data)


@pytest.mark.parametrize("blow", ["dies", "stops", "loses its network"])
def test_a_dask_worker_that(blow, environment, command, undisturbed, tmp_path, tell):
    out, rng = tmp_path / "out", np.random.default_rng([SEED, len(blow)])
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(interruptions.scheduler(tmp_path, environment))
        wire = Wire(address)
        stack.callback(wire.close)
        victim = stack.enter_context(interruptions.worker(wire.address, tmp_path, environment))
        stack.enter_context(interruptions.worker(address, tmp_path, environment))
        there = [*command, "--out", out, "--engine", f"dask://{address}"]
        with subprocess.Popen(there, env=environment) as process:
            interruptions.wait_for_cells(out, process, least=2)
            time.sleep(rng.uniform(0, CELL_SECONDS))
            if blow == "loses its network":
                wire.cut.set()
            else:
                victim.send_signal(signal.SIGKILL if blow == "dies" else signal.SIGSTOP)
            assert process.wait() == 0
    same(results(out), undisturbed)
    tell(f"a Dask worker that {blow}: every cell done by the other, exit code 0", kills=1)


def test_a_cell_that_hangs_costs_its_own_time(environment, undisturbed, tmp_path, tell):
    """In a Dask worker, which is ended and not given the cell again; the next run does it."""
    out, folder = tmp_path / "out", tmp_path / "spec"
    command = interruptions.command(
        folder, tasks=TASKS, seconds=CELL_SECONDS, timeout=20.0, untimed=True
    )
    (folder / "3-hangs").touch()
    there = [*command, "--out", out, "--engine", "dask"]
    assert subprocess.run(there, env=environment).returncode == 1
    found = results(out)
    late = [record for record in found.values() if record.status == "timeout"]
    assert [record.cell.task for record in late] == ["task3"]
    assert late[0].reason == "killed after 50 s (timeout 20 s)"
    assert len(found) == len(undisturbed)
    (folder / "3-hangs").unlink()
    before = stamps(out)
    assert subprocess.run(there, env=environment).returncode == 0
    assert sum(before[name] != stamp for name, stamp in stamps(out).items()) == 1
    same(results(out), undisturbed)
    tell("a cell that hangs in a Dask worker: ended once, told as a timeout, done by the next run")
