"""What a rerun does: what is missing, broken, failed, or of another version; and nothing else."""

import dataclasses
import json
import os
import time
from pathlib import Path

import pytest
import toys

from quietgrad.study.jobs import CellJob
from quietgrad.study.store import Store, studies

FORMAT_1 = Path(__file__).parent / "format_1"


@pytest.fixture
def jobs(tmp_path) -> list[CellJob]:
    return toys.jobs(tmp_path)


@pytest.fixture
def store(tmp_path, jobs) -> Store:
    """A store that has all of the jobs."""
    made = Store(tmp_path / "out").create()
    for job in jobs:
        made.write(toys.fake(job))
    return made


def missing(store, jobs, **changes):
    return store.missing(jobs, {**toys.environment(), **changes})


def test_nothing_is_missing_from_a_complete_store(store, jobs):
    assert missing(store, jobs) == []
    assert missing(store, jobs, dirty=True, cpu="another", jax="another") == []


def test_missing_and_broken_files_are_missing(store, jobs):
    store.remove(jobs[0].cell)
    half = store.path(jobs[1].cell)
    half.write_bytes(half.read_bytes()[:200])
    store.path(jobs[2].cell).write_bytes(b"")
    assert missing(store, jobs) == jobs[:3]
    assert [record.cell for record in store.read_all()] == [jobs[3].cell]


@pytest.mark.parametrize("name", ["quietgrad", "commit", "precision"])
def test_records_of_another_version_are_out_of_date(store, jobs, name):
    assert missing(store, jobs, **{name: "another"}) == jobs


@pytest.mark.parametrize(("status", "again"), [("failed", 1), ("timeout", 1), ("skipped", 0)])
def test_failures_are_tried_again_and_skips_are_not(store, jobs, status, again):
    store.write(toys.fake(jobs[2], status))
    assert missing(store, jobs) == jobs[2:3] * again


def test_a_changed_spec_or_model_is_run_again(store, jobs, tmp_path):
    longer = toys.jobs(tmp_path, steps=21)
    assert missing(store, longer) == longer
    (tmp_path / "my_models.py").write_text(toys.MODELS + "# changed")
    text = (tmp_path / "own.toml").read_text()
    changed = [dataclasses.replace(job, module_digest="new") for job in toys.jobs(tmp_path, text)]
    assert missing(store, changed) == changed


def test_files_are_named_after_cells_one_each(store, jobs):
    cells = [job.cell for job in jobs]
    cells += [dataclasses.replace(cells[0], label="a/b c"), dataclasses.replace(cells[0], label="a b/c")]
    paths = {store.path(cell).name for cell in cells}
    assert len(paths) == len(cells)
    assert all(set(name) < set("abcdefghijklmnopqrstuvwxyzL0123456789-.") for name in paths)


def test_the_manifest_grows_by_what_is_run_and_keeps_its_date(tmp_path, jobs):
    store = Store(tmp_path / "out").create()
    about = {"spec": {"name": "own", "title": "t"}, "environment": {}, "command": "c"}
    store.write_manifest(jobs[:2], **about)
    first = store.manifest()
    store.write_manifest(jobs[1:], **about)
    assert [planned.cell for planned in store.planned()] == [job.cell for job in jobs]
    assert store.manifest()["created"] == first["created"]
    store.write(toys.fake(jobs[0]))
    store.write(toys.fake(jobs[1], "failed"))
    store.write(toys.fake(jobs[2], quietgrad="0.0.0"))
    counts = {"done": 1, "failed": 1, "out of date": 1, "missing": 1}
    for known in (toys.environment(), {"quietgrad": toys.environment()["quietgrad"]}):
        store.write_manifest(jobs, **{**about, "environment": known})
        assert store.count() == counts


def test_a_directory_may_hold_several_studies(tmp_path, jobs):
    store = Store(tmp_path / "out").create()
    ours = {"spec": {"name": "ours", "title": "later"}, "environment": {"commit": "new"}, "command": "d"}
    first = {"spec": {"name": "own", "title": "t"}, "environment": {"commit": "old"}, "command": "c"}
    store.write_manifest(jobs[:1], **first)
    store.write_manifest(jobs[1:], **ours)
    # The first one gives the directory its name; running it again does not make a third.
    store.write_manifest(jobs[:1], **first)
    about = store.manifest()
    assert (about["name"], about["spec"]["title"]) == ("own", "t")
    assert [(each["name"], each["command"]) for each in studies(about)] == [("own", "c"), ("ours", "d")]
    # Each cell is up to date by the environment of its own study.
    for job, commit in zip(jobs, ["old", "new", "old", "new"], strict=True):
        store.write(toys.fake(job, commit=commit))
    assert store.count() == {"done": 3, "out of date": 1}


def test_a_cell_of_format_1_is_a_row_of_sgd():
    # Written by quietgrad before there were rows of methods.
    (record,) = Store(FORMAT_1).read_all()
    cell = record.cell
    assert (cell.method, cell.estimator, cell.draws, cell.label) == ("sgd", "nocv", 10, "nocv")
    assert cell.name == "main/frisk/mean-field/nocv/L10/rep4"
    assert len(record.column("elbo")) == 121
    assert "fresh at every evaluation" in record.outcome["judge"]
    assert record.environment["commit"]


def test_other_directories_and_formats_are_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="not the results directory"):
        Store(tmp_path).manifest()
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="has format 99"):
        Store(tmp_path).manifest()


def test_leftovers_of_killed_writers_are_cleared_once_they_are_old_or_outdone(tmp_path):
    store = Store(tmp_path).create()
    old, new = store.cells / ".a.parquet.1.tmp", store.cells / ".b.parquet.2.tmp"
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    store.create()
    assert not old.exists()
    assert new.exists()
    assert store.read_all() == []
    os.utime(new, (new.stat().st_mtime - 60,) * 2)
    (store.cells / "b.parquet").write_bytes(b"whole")
    store.sweep()
    assert not new.exists()


def test_a_clock_that_is_a_day_ahead_of_the_disk_s_takes_nothing_from_a_writer(tmp_path, monkeypatch):
    """A file server has a clock of its own."""
    store = Store(tmp_path).create()
    half = store.cells / ".a.parquet.1.tmp"
    half.write_bytes(b"half")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 86400.0)
    store.sweep()
    assert [file.name for file in store.cells.iterdir()] == [half.name]
