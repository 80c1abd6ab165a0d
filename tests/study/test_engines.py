"""Engines: every job stored once, whatever its process does; and what the user is told of it."""

import contextlib
import dataclasses
import functools
import io
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import toys
from rich.console import Console

from quietgrad.study.engines import REGISTRY, engine, inprocess, processes
from quietgrad.study.locks import directory_lock, host_lock
from quietgrad.study.plan import plan
from quietgrad.study.progress import StudyProgress
from quietgrad.study.runner import run_study
from quietgrad.study.store import Store


@pytest.fixture(autouse=True)
def own_lock(tmp_path, monkeypatch):
    """Tests beside this one time things, too, and need not wait for it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "false")


def only(made, *estimators, **changes):
    """The study with other estimators."""
    named = tuple(dataclasses.replace(made.grids[0].estimators[0], name=e, label=e) for e in estimators)
    grids = tuple(dataclasses.replace(grid, estimators=named, reps=1) for grid in made.grids)
    return dataclasses.replace(made, grids=grids, **changes)


def test_engines_are_found_by_name():
    for name in REGISTRY:
        run, address = engine(name)
        assert callable(run)
        assert address is None
    assert engine("dask://tcp://host:8786")[1] == "tcp://host:8786"
    with pytest.raises(ValueError, match="unknown engine 'ray'; known: dask, inprocess, processes"):
        engine("ray")
    with pytest.raises(ValueError, match="only dask takes an address"):
        engine("processes://host")


def test_in_process_all_kinds_of_ends(tmp_path):
    made = only(toys.spec(tmp_path), "nocv", "fails", "odd")
    outcome = toys.run(made, tmp_path, engine="inprocess")
    assert outcome.counts == {"done": 1, "failed": 1, "skipped": 1}
    assert str(outcome) == "3 cells: 1 done, 1 failed, 1 skipped"
    assert outcome.exit_code == 1
    # A rerun tries the failure again and nothing else.
    again = toys.run(made, tmp_path, engine="inprocess")
    assert (again.ran, again.exit_code) == (1, 1)
    # Without it, all is well.
    fine = toys.run(made, tmp_path, engine="inprocess", only=["estimator=nocv", "estimator=odd"])
    assert (fine.ran, fine.exit_code) == (0, 0)
    fresh = toys.run(made, tmp_path, engine="inprocess", only=["estimator=odd"], fresh=True)
    assert (fresh.ran, fresh.exit_code) == (1, 0)


def test_processes_survive_crashes_and_hangs(tmp_path):
    # The hang comes in a process that has imported jax, however long that takes on a busy machine.
    jobs = plan(only(toys.spec(tmp_path), "nocv", "hangs", "crashes", timeout=300.0))
    jobs[1] = dataclasses.replace(jobs[1], timeout=1.0)
    store, (progress, _) = Store(tmp_path / "out").create(), told(3, terminal=False)
    processes.run(jobs, store, progress, grace=1.0, ahead=lambda jobs, place: [])
    assert progress.counts == {"done": 1, "failed": 1, "timeout": 1}
    records = {record.cell.label: record for record in toys.stored(tmp_path).values()}
    assert "died: signal 9" in records["crashes"].reason
    assert records["hangs"].reason == "killed after 2 s (timeout 1 s)"


@pytest.mark.slow
def test_processes_and_in_process_agree_on_untimed_cells(tmp_path):
    made = dataclasses.replace(toys.spec(tmp_path), untimed=True)
    assert toys.run(made, tmp_path, engine="processes").exit_code == 0
    there = toys.stored(tmp_path)
    assert toys.run(made, tmp_path, engine="inprocess", fresh=True).exit_code == 0
    here = toys.stored(tmp_path)
    assert len(there) == 4
    assert there.keys() == here.keys()
    for name, record in here.items():
        assert record.environment["precision"] == there[name].environment["precision"]
        assert record.outcome["timed"] is False
        # Other threads, other order of sums.
        np.testing.assert_allclose(record.column("elbo"), there[name].column("elbo"), rtol=1e-9)


def test_a_dask_worker_that_does_not_end_in_time_does_not_fail_a_study():
    dask = pytest.importorskip("quietgrad.study.engines.dask")
    ended = []

    class Stubborn:
        def __init__(self, **settings):
            assert settings["host"] == dask.LOOPBACK

        def close(self):
            ended.append(True)
            raise TimeoutError

    with dask._cluster([], None, Stubborn) as cluster:
        assert isinstance(cluster, Stubborn)
    assert ended == [True]


def test_a_cell_that_hangs_ends_its_dask_worker_and_is_not_tried_again(tmp_path):
    """Where the process would end, the thread that hangs is let go instead."""
    dask = pytest.importorskip("quietgrad.study.engines.dask")
    (job, *_) = toys.jobs(tmp_path)
    job, store = dataclasses.replace(job, timeout=0.0), Store(tmp_path / "out").create()
    ended, calls = threading.Event(), []

    def hang(job):
        calls.append(job)
        assert ended.wait(60)
        raise SystemExit

    ending = {"grace": 0.1, "end_process": lambda code: ended.set()}
    with pytest.raises(SystemExit):
        dask.run_once(job, store, "this run", hang, **ending)
    record = store.read(job.cell)
    assert record is not None
    assert (record.status, record.reason) == ("timeout", "killed after 0.1 s (timeout 0 s)")
    # Dask hands it to the next worker, which only reads what came of it; another run tries again.
    assert dask.run_once(job, store, "this run", hang, **ending) == "timeout"
    assert len(calls) == 1
    assert dask.run_once(job, store, "another run", toys.fake) == "done"


def test_untimed_jobs_are_shared_out_whole_compile_groups_first(tmp_path):
    jobs = toys.jobs(tmp_path, families=("mean-field", "low-rank"))
    lanes = processes._lanes(jobs, 2)
    assert [{job.cell.family for job in lane} for lane in lanes] == [{"mean-field"}, {"low-rank"}]
    assert sorted(map(len, processes._lanes(jobs, 3))) == [2, 3, 3]
    assert processes._lanes([], 2) == []


def test_ctrl_c_keeps_what_is_stored(tmp_path):
    calls = []

    def interrupted(job):
        calls.append(job)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return toys.fake(job)

    made = toys.spec(tmp_path)
    outcome = toys.run(made, tmp_path, engine=functools.partial(inprocess.run, run_cell=interrupted))
    assert outcome.exit_code == 130
    assert outcome.counts == {"done": 2, "missing": 2}
    resumed = toys.run(made, tmp_path, engine=functools.partial(inprocess.run, run_cell=toys.fake))
    assert (resumed.ran, resumed.exit_code) == (2, 0)


def test_two_coordinators_do_not_share_a_directory(tmp_path):
    made = toys.spec(tmp_path)
    folder = Store(tmp_path / "out").create().root
    with directory_lock(folder), pytest.raises(ValueError, match="another `quietgrad study`"):
        toys.run(made, tmp_path, engine="inprocess")


def hold(folder: str, seconds: float) -> None:
    os.environ["TMPDIR"] = folder
    with host_lock():
        Path(folder, "held").touch()
        time.sleep(seconds)


def test_timed_cells_wait_for_one_another_and_a_killed_holder_holds_nothing(tmp_path):
    noticed = []
    other = multiprocessing.get_context("spawn").Process(target=hold, args=(str(tmp_path), 600.0))
    other.start()
    while not (tmp_path / "held").exists():
        assert other.is_alive()
        time.sleep(0.05)

    def notice():
        noticed.append(True)
        other.kill()

    with host_lock(notice):
        other.join()
    assert noticed == [True]
    assert other.exitcode == -signal.SIGKILL
    with host_lock(lambda: pytest.fail("nobody holds it")), contextlib.suppress(ValueError):
        pass


def told(total, *, terminal):
    out = io.StringIO()
    return StudyProgress(total, Console(file=out, force_terminal=terminal, width=100)), out


def test_progress_off_a_terminal_is_ten_lines_at_most(tmp_path):
    (job, *_) = toys.jobs(tmp_path)
    progress, out = told(25, terminal=False)
    with progress:
        for _ in range(25):
            progress.started(job)
            progress.finished(job, "done")
    lines = out.getvalue().splitlines()
    assert len(lines) == 9
    assert lines[0] == "3 of 25 cells, last main/gauss/mean-field/nocv/L2/rep0: done"
    assert lines[-1].startswith("25 of 25")


def test_progress_on_a_terminal_counts_cells_and_failures(tmp_path):
    (job, *_) = toys.jobs(tmp_path)
    progress, out = told(2, terminal=True)
    with progress:
        progress.started(job)
        progress.finished(job, "failed")
        progress.note("[not markup]")
    assert "1/2" in out.getvalue()
    assert "1 failed" in out.getvalue()
    assert "main/gauss/mean-field/nocv/L2/rep0" in out.getvalue()
    assert "[not markup]" in out.getvalue()


def test_a_run_says_what_it_will_do(tmp_path):
    out = io.StringIO()
    made, console = toys.spec(tmp_path), Console(file=out, width=200)
    store = Store(tmp_path / "out").create()
    for job in toys.jobs(tmp_path):
        store.write(toys.fake(job))
    run_study(made, store.root, engine="inprocess", console=console)
    assert "A user's own study: 4 cells, 4 stored already, 0 to run; results in" in out.getvalue()
