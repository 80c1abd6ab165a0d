"""The timing pass: every configuration once a round, and a clock for runs that have none."""

import dataclasses
import json
import math

import numpy as np
import pytest
import toys
from fabricated import unfinished

from quietgrad.cli import app
from quietgrad.study import timing_pass
from quietgrad.study.clock import Clock, clock_of, seconds, seconds_per_step
from quietgrad.study.store import Store
from quietgrad.study.timing import configurations, read_records, read_timing


@pytest.fixture
def study(tmp_path):
    """A stored study: two estimators, two repetitions, none of them timed; and a row of auto."""
    toys.spec(tmp_path, toys.SPEC + 'methods = ["auto"]\n')
    jobs = toys.jobs(tmp_path, toys.SPEC + 'methods = ["auto"]\n')
    store = Store(tmp_path / "out").create()
    for job in jobs:
        record = toys.fake(job)
        store.write(toys.changed(record, timed=job.cell.ends_itself))
    about = {"name": "own", "title": "t", "module": "my_models.py"}
    store.write_manifest(jobs, spec=about, environment={}, command="")
    return store.root


def fake_bursts(monkeypatch, fails=None):
    """Bursts that take no time: 1 ms a step for nocv, 3 ms for stl; all calls are noted."""
    calls = []

    def burst(job, steps):
        if job.cell.label == fails:
            raise ValueError("it is odd")
        calls.append((job.cell.label, steps))
        return steps * {"nocv": 0.001, "stl": 0.003}[job.cell.label]

    monkeypatch.setattr(timing_pass, "burst_seconds", burst)
    monkeypatch.setattr(timing_pass, "precompile", lambda jobs: None)
    return calls


def call(*arguments):
    return app([str(argument) for argument in arguments], result_action="return_value")


def test_a_pass_is_stored_and_gives_records_a_clock(study, tmp_path, monkeypatch, capsys):
    calls = fake_bursts(monkeypatch)
    assert all(clock_of(one) is Clock.NONE for one in read_records(study) if one.cell.label != "auto")
    code = call("study", "time", study, "--module", tmp_path / "my_models.py", "--rounds", 3)
    assert code == 0
    assert "2 configurations timed" in capsys.readouterr().out
    # Two short bursts to find the length of a burst, then one in each round, as long as asked for.
    assert calls[:4] == [("nocv", 20)] * 2 + [("stl", 20)] * 2
    assert sorted(calls[4:]) == [("nocv", 200)] * 3 + [("stl", 67)] * 3
    timing = read_timing(study)
    assert timing is not None
    (found,) = timing.passes
    assert found.environment["threads"] >= 1
    records = {one.cell.name: one for one in read_records(study)}
    nocv, stl = (records[f"main/gauss/mean-field/{name}/L2/rep1"] for name in ("nocv", "stl"))
    np.testing.assert_allclose(seconds(nocv), 0.001 * nocv.column("step"))
    np.testing.assert_allclose(seconds(stl), 0.003 * stl.column("step"))
    auto = records["main/gauss/mean-field/auto/rep0"]
    assert clock_of(auto) is Clock.OWN
    assert seconds(auto)[-1] == 0.1


def test_rounds_take_turns(study, tmp_path, monkeypatch):
    calls = fake_bursts(monkeypatch)
    call("study", "time", study, "--module", tmp_path / "my_models.py", "--rounds", 8)
    rounds = [tuple(label for label, _ in calls[place : place + 2]) for place in range(4, len(calls), 2)]
    assert {frozenset(one) for one in rounds} == {frozenset({"nocv", "stl"})}
    assert set(rounds) == {("nocv", "stl"), ("stl", "nocv")}


def test_a_pass_in_pieces_keeps_what_it_does_not_measure_again(study, tmp_path, monkeypatch, capsys):
    module = ("--module", tmp_path / "my_models.py")
    fake_bursts(monkeypatch)
    for label, rounds in (("nocv", 2), ("stl", 3)):
        call("study", "time", study, *module, "--only", f"estimator={label}", "--rounds", rounds)
        assert "1 configurations timed" in capsys.readouterr().out
    timing = read_timing(study)
    assert timing is not None
    assert [len(each.times) for each in timing.passes] == [1, 1]
    assert sorted(map(len, timing.by_configuration().values())) == [2, 3]
    call("study", "time", study, *module, "--only", "estimator=nocv", "--rounds", 5)
    timing = read_timing(study)
    assert timing is not None
    assert [each.times[0].cell.label for each in timing.passes] == ["stl", "nocv"]
    assert sorted(map(len, timing.by_configuration().values())) == [3, 5]
    with pytest.raises(ValueError, match="unknown estimator in this study"):
        call("study", "time", study, *module, "--only", "estimator=nothing")


def test_what_cannot_be_measured_is_told_and_the_rest_is_stored(study, tmp_path, monkeypatch, capsys):
    fake_bursts(monkeypatch, fails="stl")
    assert call("study", "time", study, "--module", tmp_path / "my_models.py", "--rounds", 2) == 1
    assert "not measured: main/gauss/mean-field/stl/L2/rep0: ValueError: it is odd" in (
        capsys.readouterr().out
    )
    timing = read_timing(study)
    assert timing is not None
    assert len(timing.by_configuration()) == 1


def test_a_real_burst(study, tmp_path):
    (cell, *_) = configurations(planned.cell for planned in Store(study).planned())
    job = timing_pass._job(cell, tmp_path / "my_models.py")
    assert timing_pass.burst_seconds(job, 30) > 0


def test_what_is_timed_is_the_first_repetition_from_its_own_start(study, tmp_path):
    """Whichever repetition a configuration was read from."""
    planned = toys.jobs(tmp_path, toys.SPEC)
    seeds = {job.cell.name: job.seed for job in planned}
    assert {job.cell.rep for job in planned} == {0, 1}
    for job in planned:
        timed = timing_pass._job(job.cell, None)
        assert timed.cell.rep == 0
        assert timed.seed == seeds[timed.cell.name]


def test_misuse(study, tmp_path):
    with pytest.raises(ValueError, match=r"models of its own in my_models\.py; .*--module"):
        call("study", "time", study)
    with pytest.raises(FileNotFoundError, match="no results"):
        call("study", "time", tmp_path / "nowhere")
    with pytest.raises(ValueError, match="rounds must be"):
        call("study", "time", study, "--rounds", 0)
    with pytest.raises(ValueError, match="burst must be"):
        call("study", "time", study, "--burst", 0)
    (study / "timing.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        read_timing(study)


@pytest.mark.parametrize(
    ("step", "spent", "expected"),
    [
        ([0, 100], [0.0, 5.0], 0.05),
        ([0, 50, 100], [2.0, 3.0, 7.0], 0.05),
        ([100, 200], [7.0, 12.0], 0.05),
        ([100], [7.0], math.nan),
        ([100, 100], [7.0, 12.0], math.nan),
        ([100, 200], [7.0, 7.0], math.nan),
        ([100, 200], [7.0, math.nan], math.nan),
        ([], [], math.nan),
    ],
)
def test_seconds_of_a_step_count_from_the_first_evaluation(step, spent, expected):
    """Whenever that was, and wherever a run began; none without two of them."""
    columns = {"step": np.array(step, float), "seconds": np.array(spent, float)}
    found = dataclasses.replace(unfinished("done", ""), columns=columns, outcome={"timed": True})
    np.testing.assert_allclose(seconds_per_step(found), expected)
