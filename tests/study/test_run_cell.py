"""Whatever happens to a cell becomes a row that says what happened."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import toys
from subjects import PROGRAMS

from quietgrad.study import precompile as compiling
from quietgrad.study.noise import _deviations, _paired_ratio
from quietgrad.study.plan import plan
from quietgrad.study.records import read_record, write_record
from quietgrad.study.run_cell import compile_seconds, run_cell


def change(job, **cell):
    return dataclasses.replace(job, cell=dataclasses.replace(job.cell, **cell))


@pytest.fixture
def job(tmp_path):
    return toys.jobs(tmp_path, variance_every=20, variance_repeats=20)[0]


def test_a_finished_cell(job, tmp_path):
    record = run_cell(change(job, steps=25))
    assert (record.status, record.reason) == ("done", "")
    assert list(record.column("step")) == [0, 10, 20, 25]
    assert np.all(np.diff(record.column("seconds")) > 0)
    assert np.all(np.isfinite(record.column("elbo")))
    assert np.isnan(record.column("variance_ratio")[1])
    assert list(record.column("variance_ratio")[[0, 2, 3]]) == [1, 1, 1]
    assert np.all(record.column("variance")[[0, 2, 3]] > 0)
    outcome = record.outcome
    assert outcome["fit_status"] in ("budget", "converged")
    assert outcome["dim"] == 2
    assert outcome["steps"] == 25
    assert outcome["compile_seconds"] > 0
    assert outcome["elbo_error"] > 0
    assert record.environment["threads"] >= 1
    write_record(tmp_path / "cell.parquet", record)
    assert read_record(tmp_path / "cell.parquet").outcome == outcome


@pytest.mark.turns(2)
@pytest.mark.parametrize("light", [False, True])
def test_estimators_of_a_repetition_are_paired(tmp_path, light):
    how = {"variance_every": 20, "variance_repeats": 40, "reps": 1, "light_evaluation": light}
    nocv, stl = map(run_cell, toys.jobs(tmp_path, **how))
    assert nocv.seed == stl.seed
    # The same initial point and evaluation draws; STL's noise is NoCV's without the score of q.
    assert nocv.column("elbo")[0] == stl.column("elbo")[0]
    assert nocv.column("elbo")[1] != stl.column("elbo")[1]
    ratio, error = stl.column("variance_ratio")[0], stl.column("variance_ratio_error")[0]
    assert 0 < ratio != 1
    assert 0 < error < math.inf
    if light:
        assert math.isclose(stl.column("variance")[0] / nocv.column("variance")[0], ratio)


def test_light_evaluation_finds_the_same_ratio(tmp_path):
    how = {"variance_every": 20, "variance_repeats": 400, "reps": 1}
    full, light = (
        run_cell(toys.jobs(tmp_path, **how, light_evaluation=light)[1]) for light in (False, True)
    )
    for place in (0, 2):
        ratios, errors = zip(
            *(
                (run.column("variance_ratio")[place], run.column("variance_ratio_error")[place])
                for run in (full, light)
            ),
            strict=True,
        )
        assert abs(ratios[0] - ratios[1]) < 5 * math.hypot(*errors)
        # Ten groups know a standard error to about a quarter; a factor of three is 4 times that.
        assert 1 / 3 < errors[0] / errors[1] < 3


def test_a_run_is_repeatable_and_repetitions_share_compiled_code(tmp_path):
    first, second, *_ = toys.jobs(tmp_path, variance_every=20, variance_repeats=20)
    record = run_cell(first)
    before = PROGRAMS[0]
    assert before > 0
    other, again = run_cell(second), run_cell(first)
    assert PROGRAMS[0] == before
    assert other.seed != record.seed
    assert not np.array_equal(other.column("elbo"), record.column("elbo"))
    for name in set(record.columns) - {"seconds"}:
        np.testing.assert_array_equal(again.column(name), record.column(name))


def test_precompiling_compiles_everything_and_changes_nothing(tmp_path):
    jobs = toys.jobs(tmp_path, variance_every=20, variance_repeats=20, light_evaluation=True)
    compiling.precompile(jobs)
    assert {job.programs for job in jobs} <= set(compile_seconds)
    before = PROGRAMS[0]
    precompiled = [run_cell(job) for job in jobs]
    assert PROGRAMS[0] == before
    assert all(record.outcome["compile_seconds"] > 0.01 for record in precompiled)
    compile_seconds.clear()
    jax.clear_caches()
    cold = run_cell(jobs[3])
    np.testing.assert_array_equal(cold.column("elbo"), precompiled[3].column("elbo"))


def test_full_memory_is_given_back(tmp_path):
    jobs = toys.jobs(tmp_path)
    run_cell(jobs[0])
    assert compile_seconds
    compiling.precompile([], memory_bytes=0)
    assert not compile_seconds


def test_exceptions_are_failures_with_type_message_and_place(job):
    record = run_cell(change(job, estimator="fails"))
    assert record.status == "failed"
    assert record.reason.startswith("RuntimeError: no luck today (my_models.py:")
    assert record.reason.endswith(" in fail)")
    assert record.outcome["fingerprint"]
    missing_data = run_cell(change(job, task="none"))
    assert missing_data.status == "failed"
    assert "unknown task 'none'" in missing_data.reason


def test_what_an_estimator_does_not_support_is_skipped_with_its_reason(job):
    record = run_cell(change(job, estimator="odd"))
    assert (record.status, record.reason) == ("skipped", "it is odd, and so it goes")
    assert len(record.columns) == 0


def test_time_runs_out_at_an_evaluation_and_what_was_reached_is_kept(job):
    clock = iter(range(1000))

    def now():
        return float(next(clock))

    record = run_cell(dataclasses.replace(job, timeout=2.5), now)
    assert record.status == "timeout"
    assert record.reason == "stopped after 2.5 s at step 20 of 20"
    assert list(record.column("step")) == [0, 10]
    assert math.isfinite(record.outcome["elbo"])
    late = run_cell(dataclasses.replace(job, timeout=0.5), now)
    assert (late.status, late.reason) == ("timeout", "stopped after 0.5 s at step 0 of 20")
    assert len(late.column("step")) == 0


def row(folder, method, **settings):
    """The job of a method's row, first repetition."""
    text = toys.SPEC.replace('["nocv", "stl"]', "[]")
    spec = toys.spec(folder, text + f'methods = ["{method}"]\n')
    (job, *_) = plan(dataclasses.replace(spec, untimed=True))
    return change(job, settings=settings)


@pytest.mark.parametrize("method", ["auto", "saa"])
def test_a_method_is_a_row_judged_as_the_others_are(tmp_path, method):
    settings = {"polish_steps": 30} if method == "saa" else {"steps": 400, "by_clock": False}
    job = row(tmp_path, method, **settings)
    assert (job.cell.method, job.cell.estimator, job.cell.draws) == (method, None, None)
    assert job.timed  # in an untimed study, too: what its steps cost varies
    record = run_cell(job)
    assert (record.status, record.reason) == ("done", "")
    assert record.cell.name == f"main/gauss/mean-field/{method}/rep0"
    # A Gaussian is fitted exactly: log Z = log(2 pi) for two dimensions.
    errors = 5 * record.outcome["elbo_error"] + 0.1
    assert abs(record.outcome["elbo"] - math.log(2 * math.pi)) < errors
    assert record.outcome["judge"].startswith("20 draws in antithetic pairs")
    # Where its judge erred, the answer's many draws set it right.
    assert np.max(record.elbo) == pytest.approx(record.outcome["elbo"])
    assert np.all(np.diff(record.column("seconds")) > 0)
    assert len(record.column("variance_ratio")) == len(record.column("elbo"))
    write_record(tmp_path / "cell.parquet", record)
    assert read_record(tmp_path / "cell.parquet").cell == record.cell


def test_the_draws_that_judge_a_method_are_those_of_every_row(tmp_path):
    (plain, *_) = toys.jobs(tmp_path)
    mine = run_cell(row(tmp_path, "saa", polish_steps=0, most_iterations=10))
    theirs = run_cell(plain)
    # At step 0 all are at the same q.
    assert mine.column("step")[0] == theirs.column("step")[0] == 0
    assert mine.column("elbo")[0] == theirs.column("elbo")[0]


def test_sgd_as_a_method_takes_its_settings(tmp_path):
    estimator = {"name": "quiet", "draws": 4}
    blank = row(tmp_path, "saa")
    cell = {"method": "sgd", "steps": 20, "learning_rate": 0.1}
    done = [
        run_cell(change(blank, **cell, settings={"estimator": estimator, "schedule": schedule}))
        for schedule in ("constant", "cosine")
    ]
    assert [one.status for one in done] == ["done", "done"]
    first, second = (one.column("elbo") for one in done)
    assert first[0] == second[0]
    assert first[-1] != second[-1]


def test_a_fit_that_fails_is_data(job):
    """Its parameters turn non-finite, because the density has no end."""
    record = run_cell(change(job, task="explosive"))
    assert record.status == "done"
    assert record.outcome["fit_status"] == "unbounded"


def test_ctrl_c_gets_out(job):
    """It comes while the time is read, at the evaluation after the first."""
    seconds = iter([0.0, 0.0])

    def now():
        if (second := next(seconds, None)) is None:
            raise KeyboardInterrupt
        return second

    with pytest.raises(KeyboardInterrupt):
        run_cell(job, now)


@pytest.mark.slow
def test_light_evaluation_with_minibatches_and_without_any_noise(tmp_path):
    how = {"tasks": ("rows",), "reps": 1, "variance_every": 20, "variance_repeats": 20}
    nocv, quadcv = map(run_cell, toys.jobs(tmp_path, BATCHES, **how, light_evaluation=True))
    assert (nocv.status, quadcv.status) == ("done", "done")
    assert nocv.cell.batch_size == 4
    # Before it has learned anything, QuadCV subtracts next to nothing.
    assert quadcv.column("variance_ratio")[0] == pytest.approx(1)
    assert quadcv.column("variance")[0] == pytest.approx(nocv.column("variance")[0])
    still = _deviations(jnp.ones((20, 3)))
    assert np.all(np.isnan(_paired_ratio(still, still)))
    assert _paired_ratio(still, still + 1) == (0, 0)


BATCHES = toys.SPEC.replace('"stl"', '"quadcv"')
