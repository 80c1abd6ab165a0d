"""What is evaluated on the way: when it is due, with the same draws for all that ran in a repetition."""

import dataclasses
import math

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
import toys

import quietgrad as qg
from quietgrad.study.evaluator import Evaluator, OutOfTime
from quietgrad.study.noise import Noise

ROWS = qg.Target(
    lambda z: -0.5 * jnp.sum(z**2), lambda z, x: -0.5 * (x - z[0]) ** 2, jnp.arange(4.0), dim=2
)
Q = qg.MeanField(jnp.array([1.0, 0.0]), jnp.array([-0.5, 0.0]))


@pytest.fixture
def make(tmp_path, key):
    """An evaluator of test rows, every ten of 25 steps; the time is always `now`."""
    job = toys.jobs(tmp_path)[0]
    job = dataclasses.replace(
        job,
        cell=dataclasses.replace(job.cell, steps=25),
        schedule=dataclasses.replace(job.schedule, lppd_every=10, lppd_draws=8),
    )

    def made(now=0.0, test=ROWS):
        keys = {"key_noise": jr.fold_in(key, 0), "key_test": jr.fold_in(key, 1)}
        return Evaluator(job, ROWS, test, None, None, deadline=5.0, now=lambda: now, **keys)

    return made


def test_test_rows_are_predicted_where_it_is_due(make):
    """At round steps and at the end; whoever is evaluated at a step meets the draws of that step."""
    found = [make()(Q, None, step) for step in (0, 5, 10, 20, 25)]
    assert [set(each) for each in found] == [{"lppd"}, set(), {"lppd"}, {"lppd"}, {"lppd"}]
    told = [each["lppd"] for each in found if each]
    assert len(set(told)) == 4
    assert make()(Q, None, 10) == found[2]
    # No row's likelihood is above one.
    assert all(-np.inf < value < 0 for value in told)


def test_without_test_rows_nothing_is_predicted(make):
    assert make(test=None)(Q, None, 0) == {}


def test_after_the_deadline_the_cell_is_late(make):
    in_time, late = make(now=5.0), make(now=5.1)
    assert "lppd" in in_time(Q, None, 10)
    assert not in_time.late
    with pytest.raises(OutOfTime):
        late(Q, None, 10)
    assert late.late


@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_ratio_is_that_of_the_variances_by_themselves(batch_size, key):
    """NoCV has a record of its own, with the same draws and rows; the ratio is ours over NoCV's."""
    nocv, stl = (qg.estimator(name, draws=2) for name in ("nocv", "stl"))
    alone, paired, same = (
        Noise(ROWS, estimator, baseline, 20, batch_size, light=True).columns(Q, None, key=key)
        for estimator, baseline in ((nocv, None), (stl, nocv), (nocv, nocv))
    )
    assert math.isclose(paired["variance_ratio"], paired["variance"] / alone["variance"])
    assert paired["variance_ratio"] != pytest.approx(1)
    assert same["variance_ratio"] == pytest.approx(1)
    assert same["variance_ratio_error"] == pytest.approx(0, abs=1e-12)
    assert (alone["variance_ratio"], alone["variance_ratio_error"]) == (1, 0)
