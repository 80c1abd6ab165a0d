"""`quietgrad study`: exit codes, tables, status, and a user's own spec from start to end."""

import json
import os
import subprocess
import sys

import pytest
import toys

from quietgrad.cli import app
from quietgrad.cli.commands import study
from quietgrad.study import runner
from quietgrad.study.store import Store

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def call(*arguments):
    return app([str(argument) for argument in arguments], result_action="return_value")


@pytest.fixture
def instant(monkeypatch):
    """An engine that makes its records up: the third one failed, the fourth was skipped."""

    def run(jobs, store, listener, address):
        for place, job in enumerate(jobs):
            status = ["done", "done", "failed", "skipped"][place]
            store.write(toys.fake(job, status))
            listener.finished(job, status)

    monkeypatch.setattr(runner, "engine_of", lambda name: (run, None))


def test_list_names_the_shipped_studies(capsys):
    assert call("study", "list") == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("paper", "quick", "smoke"))


def test_failures_are_told_and_make_the_command_fail(tmp_path, capsys, instant):
    toys.spec(tmp_path)
    out = tmp_path / "out"
    assert call("study", tmp_path / "own.toml", "--out", out, "--no-report") == 1
    told = capsys.readouterr().out
    assert "4 cells: 2 done, 1 failed, 1 skipped" in told
    assert "failed: main/gauss/mean-field/stl/L2/rep0" in told
    row = next(line for line in told.splitlines() if "nocv" in line)
    assert "-1.0" in row
    assert call("study", "status", out) == 1
    status = capsys.readouterr().out
    assert "A user's own study (own)" in status
    assert "     2 done" in status
    assert "     1 failed" in status


def test_overrides_and_the_default_directory(tmp_path, monkeypatch, capsys, instant):
    toys.spec(tmp_path)
    monkeypatch.chdir(tmp_path)
    only = ("--only", "estimator=nocv", "--only", "rep=0")
    assert call("study", "own.toml", *only, "--steps", 7, "--reps", 3, "--no-report") == 0
    store = Store(tmp_path / "quietgrad-results" / "own")
    (planned,) = store.planned()
    assert (planned.cell.label, planned.cell.rep, planned.cell.steps) == ("nocv", 0, 7)
    manifest = json.loads((store.root / "manifest.json").read_text())
    assert manifest["spec"]["grids"][0]["reps"] == 3
    assert manifest["spec"]["only"] == ["estimator=nocv", "rep=0"]
    assert manifest["spec"]["module"] == "my_models.py"
    assert {"quietgrad", "commit", "dirty", "jax", "numpy", "cpu", "threads", "precision"} <= set(
        manifest["environment"]
    )
    assert call("study", "status", store.root) == 0


def test_a_complete_study_of_the_users_own_with_its_page(tmp_path, capsys, monkeypatch):
    # What else is timed on this host need not be waited for.
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    toys.spec(tmp_path)
    out = tmp_path / "out"
    assert call("study", tmp_path / "own.toml", "--out", out, "--engine", "inprocess") == 0
    told = capsys.readouterr().out
    assert "4 cells: 4 done" in told
    assert f"page: {out / 'index.html'}" in told
    assert (out / "index.html").exists()


def test_misuse_says_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="unknown study"):
        call("study", "quik")
    with pytest.raises(FileNotFoundError, match="not the results directory"):
        call("study", "status", tmp_path)
    with pytest.raises(ValueError, match="unknown engine"):
        call("study", "smoke", "--engine", "ray", "--out", tmp_path)


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("package", "command"),
    [
        ("pyarrow", ["study", "smoke"]),
        ("pyarrow", ["study", "status", "."]),
        ("plotly", ["report", "."]),
        ("distributed", ["study", "smoke", "--engine", "dask"]),
    ],
)
def test_a_missing_package_says_what_to_install(package, command, tmp_path):
    code = f"import sys; sys.modules[{package!r}] = None; from quietgrad.cli import main; main()"
    call = [sys.executable, "-c", code, *command]
    told = subprocess.run(call, capture_output=True, text=True, check=False, cwd=tmp_path, env=ENV)
    assert told.returncode == 2
    assert f"needs {package}: pip install 'quietgrad[study]' brings it" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize("command", [["study", "--help"], ["report", "--help"], ["study", "list"]])
def test_help_does_not_wait_for_jax(command):
    code = (
        "import sys\nfrom quietgrad.cli import app\n"
        f"app({command!r}, result_action='return_value')\nsys.exit('jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_numbers_that_are_not_there_are_dashes():
    assert study._number(None, ".1f") == study._number(float("nan"), ".1f") == "–"
    assert study._number(1234.5, ",.1f") == "1,234.5"
