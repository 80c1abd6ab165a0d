"""Jobs: seeds that estimators share, neighbours that share programs, fingerprints that tell."""

import dataclasses
import json

import pytest
import toys

from quietgrad.study.jobs import CellJob, seed_of
from quietgrad.study.precompile import group_ahead


def test_estimators_draws_and_groups_share_seeds_and_repetitions_do_not(tmp_path):
    text = toys.SPEC + toys.SPEC[toys.SPEC.index("[[grid]]") :] + "group = 'more'\n"
    jobs = toys.jobs(tmp_path, text, draws=(2, 4))
    assert len(jobs) == 16
    assert {job.seed for job in jobs if job.cell.rep == 0} == {seed_of("gauss", "mean-field", 0)}
    assert len({job.seed for job in jobs}) == 2
    places = [(task, family, rep) for task in "ab" for family in "cd" for rep in range(9)]
    seeds = {seed_of(*place) for place in places}
    assert len(seeds) == len(places)
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_seeds_never_change():
    # Written down once: other values would make stored results incomparable with new ones.
    assert [seed_of("frisk", "mean-field", rep) for rep in range(2)] == [1158795673, 728434242]


def test_repetitions_are_neighbours_and_a_group_is_compiled_at_its_start(tmp_path):
    jobs = toys.jobs(tmp_path, families=("mean-field", "low-rank"))
    programs = [job.programs for job in jobs]
    assert programs[0] == programs[1]
    assert len(set(programs)) == len(programs) // 2
    assert [len(group_ahead(jobs, place)) for place in range(len(jobs))] == [4, 0, 0, 0, 4, 0, 0, 0]


def test_the_same_cell_twice_is_an_error(tmp_path):
    again = toys.SPEC + toys.SPEC[toys.SPEC.index("[[grid]]") :]
    with pytest.raises(ValueError, match="twice"):
        toys.jobs(tmp_path, again)


def test_a_job_survives_json(tmp_path):
    (job, *_) = toys.jobs(tmp_path)
    assert CellJob.from_json(json.loads(json.dumps(job.to_json()))) == job


def test_fingerprints_change_with_what_changes_results_only(tmp_path):
    (job, *_) = toys.jobs(tmp_path)
    changed = [
        dataclasses.replace(job, cell=dataclasses.replace(job.cell, steps=21)),
        dataclasses.replace(job, cell=dataclasses.replace(job.cell, learning_rate=0.2)),
        dataclasses.replace(job, schedule=dataclasses.replace(job.schedule, elbo_draws=21)),
        dataclasses.replace(job, module_digest="other"),
        dataclasses.replace(job, timed=False),
    ]
    assert len({one.fingerprint for one in [job, *changed]}) == len(changed) + 1
    moved = dataclasses.replace(job, timeout=1.0, module="elsewhere.py")
    assert moved.fingerprint == job.fingerprint
