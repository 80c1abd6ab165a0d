"""Rungs of the ladder: values that a plan prints, that say why they cannot be tried."""

import dataclasses
import math
from types import SimpleNamespace

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.evaluation.points import Points
from quietgrad.families.bases import Normal
from quietgrad.families.mixture import Components, Mixture
from quietgrad.methods.auto import Fit
from quietgrad.methods.rungs import RUNGS, FlowRung, FullRankRung
from quietgrad.session import Problem, Recorder
from quietgrad.solvers import Annealed


def test_the_plan_prints_every_rung_with_its_numbers():
    plan = str(qg.Auto())
    for rung in RUNGS:
        assert type(rung).__name__ in plan
    assert "most_dim: 3" in str(qg.Auto(rungs=(FullRankRung(), FlowRung(most_dim=3))))


def test_a_plan_without_rungs_stays_mean_field():
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2) - 20.0 * (z[0] - z[1]) ** 2, dim=3)
    result = qg.fit(target, "auto", method=qg.Auto(rungs=()), key=jr.key(0))
    assert isinstance(result.q, qg.MeanField)


def test_rungs_are_tried_in_the_order_of_the_plan():
    """Only a flow is offered, and no chains that would make it needless: it has to learn the bend."""
    target = qg.Target.from_logdensity(
        lambda z: -0.5 * z[0] ** 2 - 0.5 * ((z[1] - z[0] ** 2) / 0.3) ** 2, dim=2
    )
    without = qg.Diagnostics(most_moves=0)
    method = qg.Auto(rungs=(FlowRung(),), judged_by=without, steps=4000, by_clock=False)
    result = qg.fit(target, "auto", method=method, key=jr.key(0))
    assert isinstance(result.q, qg.families.AutoregressiveFlow)
    assert [d.kind for d in result.decisions].count("up") == 1


@pytest.mark.parametrize("rung", RUNGS, ids=lambda rung: type(rung).__name__)
def test_a_rung_whose_programs_would_not_be_compiled_in_time_is_not_begun(rung):
    """By what compiling took so far: ten seconds of it, and five are left."""
    spent = SimpleNamespace(spent=lambda phase: 10.0)
    fits = [
        SimpleNamespace(session=SimpleNamespace(left=lambda left=left: left, clock=spent))
        for left in (5.0, 1000.0, math.inf)
    ]
    assert [rung.out_of_time(fit) is None for fit in fits] == [not rung.compiles, True, True]


def test_a_flow_begins_in_the_coordinates_of_a_gaussian_with_the_answer_s_moments():
    """Of an answer that is none; a Gaussian is taken as it is."""
    rng = np.random.default_rng(0)
    loc, root = rng.normal(size=3), np.tril(rng.normal(size=(3, 3))) + 2 * np.eye(3)
    gaussian = qg.FullRank.of_host(loc, root, np.dtype(float), Normal())
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=3)
    session = Recorder(Problem(target, gaussian), key=jr.key(0))
    session.use_points(Points(target, gaussian.dtype))
    fit, rung = SimpleNamespace(session=session), FlowRung(draws=2000)
    assert rung._gaussian(fit, gaussian) is gaussian
    # Two components with moments of their own that are known.
    apart = np.array([1.5, 0.0, -1.0])
    both = Mixture.of(
        Components(np.log([0.5, 0.5]), np.stack([loc - apart, loc + apart]), np.stack([root, root])),
        np.dtype(float),
    )
    found = rung._gaussian(fit, both)
    assert isinstance(found, qg.FullRank)
    covariance = root @ root.T + np.outer(apart, apart)
    std, error = np.sqrt(np.diagonal(covariance)), 1 / np.sqrt(2000)
    assert np.all(np.abs(found.mean() - loc) < 5 * error * std)
    # Entries of a covariance have an error of sqrt(1 + r^2) sds, for tails no heavier than a normal's.
    off = np.abs(found.host_covariance() - covariance) / np.outer(std, std)
    assert np.all(off < 5 * np.sqrt(2) * error)


@pytest.mark.parametrize("close", [True, False])
def test_a_flow_that_is_close_to_the_posterior_is_not_made_deeper(close):
    """Another program, and as many steps again, are for one that is still far."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
    gaussian = qg.FullRank.unit(2, np.dtype(float))
    problem = Problem(target, gaussian, any_family=True)
    session = Recorder(problem, key=jr.key(0))
    session.use_points(Points(target, gaussian.dtype))
    fit = Fit(qg.Auto(by_clock=False), problem, session)
    below = session.evaluate(gaussian, 0)
    rung = FlowRung(depth=1, deeper=2, anneal=Annealed(length=20, most_steps=20))
    rung = rung if close else dataclasses.replace(rung, close=-math.inf)
    assert rung.refuses(fit) is None
    assert rung.solve(fit, below) is not None
    assert session.best.terms.gap < FlowRung().close * fit.gain
    assert session.steps == (20 if close else 40)
