"""Draws of long chains, where q is off and weights do not correct it."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest
from posteriors import funnel

import quietgrad as qg
from quietgrad.diagnostics.budget import Budget
from quietgrad.diagnostics.chains import Sampler
from quietgrad.diagnostics.charts import PlainChart
from quietgrad.diagnostics.diagnose import diagnose
from quietgrad.diagnostics.diagnosis import Ending, Verdict
from quietgrad.diagnostics.draws import draw
from quietgrad.diagnostics.long_chains import Begun, Settled, _metric_of_states, run_on, settled
from quietgrad.diagnostics.metric import Metric, metric_of
from quietgrad.diagnostics.settings import Diagnostics
from quietgrad.diagnostics.watched import Watched
from quietgrad.evaluation.points import Points
from quietgrad.status import Status

CONVERGED = Ending(Status.CONVERGED, "")
# t with five degrees of freedom: means and sds exist, and a Gaussian's weights are too uneven.
STUDENT = qg.Target.from_logdensity(lambda z: -3.0 * jnp.sum(jnp.log1p(z**2 / 5)), dim=3)
STUDENT_STD = math.sqrt(5 / 3)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def mean_field(loc, std):
    return qg.MeanField(jnp.asarray(loc), jnp.log(jnp.asarray(std)))


def quartic(dim):
    return qg.Target.from_logdensity(lambda z: z[0] * z[1] - 0.25 * jnp.sum(z**4), dim=dim)


def chains_from(target, q, rng, settings, *, budget=None):
    points = Points(target, q.dtype)
    drawn = draw(q, points, rng, 500)
    watched = Watched(target, q.dtype, drawn, rng)
    begun = Begun(PlainChart(points), metric_of(drawn), drawn.z[:96])
    return run_on(begun, watched, rng, settings, Budget() if budget is None else budget)


@pytest.mark.parametrize("scale", [0.2, 1.0])
def test_draws_of_long_chains_have_the_moments_of_the_posterior(scale, rng):
    """Whatever q was: too narrow, and beside the mode. Errors are those that the chains state."""
    q = mean_field(np.full(3, 1.0), np.full(3, scale))
    found = chains_from(STUDENT, q, rng, Diagnostics())
    assert found is not None
    assert found.enough, found.why
    error = 1 / math.sqrt(found.effective)
    assert np.all(np.abs(found.z.mean(axis=0)) < 5 * error * STUDENT_STD)
    ratio = np.log(found.z.std(axis=0) / STUDENT_STD)
    assert np.all(np.abs(ratio) < 5 * found.scale_error)


def test_the_step_is_fixed_while_states_count(rng):
    """A step that follows the states is no Markov chain's; a new metric has it adapted once more."""
    points = Points(quartic(4), np.float64)
    drawn = draw(mean_field(np.zeros(4), np.full(4, 1.0)), points, rng, 500)
    metric = metric_of(drawn)
    sampler = Sampler(PlainChart(points), metric, drawn.z[:32], rng)
    begun = sampler.step
    sampler.advance(8)
    adapted = sampler.step
    assert adapted != begun
    sampler.forget()
    sampler.advance(8)
    assert sampler.step == adapted
    wide = metric._replace(root=10 * metric.root)
    sampler.forget(wide)
    sampler.advance(8)
    assert sampler.step < adapted


def test_averages_of_all_coordinates_are_those_of_the_last_round(rng):
    """Where only some numbers of each state are kept; here these are all, so that they tell."""
    points = Points(quartic(4), np.float64)
    start = rng.standard_normal((16, 4))
    sampler = Sampler(PlainChart(points), Metric(np.zeros(4), np.ones(4)), start, rng, keep=lambda z: z)
    first = sampler.run(100)
    np.testing.assert_allclose(first.averages(), np.mean(first.z, axis=0), rtol=1e-12, atol=1e-12)
    second = sampler.run(200)
    last = second.z[len(first.z) :]
    assert len(last) > 1
    np.testing.assert_allclose(second.averages(), np.mean(last, axis=0), rtol=1e-12, atol=1e-12)


def test_chains_that_stay_in_two_modes_are_not_enough(rng):
    two = qg.Target.from_logdensity(
        lambda z: jnp.logaddexp(-0.5 * jnp.sum((z - 6) ** 2), -0.5 * jnp.sum((z + 6) ** 2)), dim=1
    )
    found = chains_from(two, mean_field(np.zeros(1), np.full(1, 5.0)), rng, Diagnostics())
    assert found is not None
    assert not found.enough
    # Each chain is worth one draw, of which mode it is in.
    assert found.effective < 2 * found.chains


def test_chains_that_diverge_are_not_enough(rng):
    """The neck of a centred funnel is narrower than any step that is good elsewhere."""
    found = chains_from(funnel(), mean_field(np.zeros(10), np.full(10, 1.0)), rng, Diagnostics())
    assert found is not None
    assert not found.enough


def test_moves_that_diverge_by_too_large_a_step_are_tried_again(rng):
    """A step that is too large for a Gaussian diverges everywhere; a smaller one nowhere."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=2)
    # At an acceptance of a half, energies are often off by more than this.
    careless, careful = (0.41, 0.55), (0.97, 0.99)
    settings = Diagnostics(divergence=1.5)
    q = mean_field(np.zeros(2), np.ones(2))
    once = dataclasses.replace(settings, long_acceptance=(careless,), long_leapfrogs=(8,))
    found = chains_from(target, q, rng, once)
    assert found is not None
    assert found.diverged > settings.most_diverged
    assert not found.enough
    twice = dataclasses.replace(settings, long_acceptance=(careless, careful), long_leapfrogs=(8, 16))
    found = chains_from(target, q, rng, twice)
    assert found is not None
    assert found.diverged <= settings.most_diverged
    assert found.enough, found.why


def test_without_time_there_are_no_long_chains(rng):
    budget = Budget(1.0, now=map(float, range(10**6)).__next__)
    budget.pace = 1.0
    settings = Diagnostics()
    assert (
        chains_from(STUDENT, mean_field(np.zeros(3), np.ones(3)), rng, settings, budget=budget) is None
    )
    assert "long chains from q's draws" in budget.further


def test_an_average_that_moves_is_seen(rng):
    """Independent states whose mean changes over time: worth many draws, and not at rest."""
    q = mean_field(np.zeros(2), np.ones(2))
    target = quartic(2)
    watched = Watched(target, q.dtype, draw(q, Points(target, q.dtype), rng, 200), rng)
    states = rng.standard_normal((64, 96, 2))
    at_rest = settled(watched, states, Diagnostics())
    assert at_rest.drift < 1
    assert at_rest.effective > 400
    moving = states + np.array([0.5, 0.0]) * (np.arange(64) >= 32)[:, None, None]
    assert settled(watched, moving, Diagnostics()).drift > 1


def test_chains_end_where_going_on_would_not_be_enough():
    """Effective sizes grow with the moves, errors of scales with their root; divergences stay."""
    settings = Diagnostics()
    slow = Settled(effective=60.0, scale_error=0.01, drift=0.0, name="tau")
    assert slow.objection(0.0, settings)
    assert slow.within_reach(4.0, 0.0, settings)
    assert not slow.within_reach(2.0, 0.0, settings)
    assert not slow.within_reach(4.0, 2 * settings.most_diverged, settings)
    rough = slow._replace(effective=1e4, scale_error=0.12)
    assert rough.within_reach(4.0, 0.0, settings)
    assert not rough.within_reach(2.0, 0.0, settings)


def diagnosed(rng, **settings):
    """Of a Gaussian that is half as wide as a posterior with heavy tails."""
    q = mean_field(np.zeros(3), np.full(3, 0.5 * STUDENT_STD))
    return diagnose(STUDENT, q, CONVERGED, rng, settings=Diagnostics(**settings))


def test_the_verdict_hands_out_draws_of_chains_where_weights_do_not_correct(rng):
    found = diagnosed(rng)
    assert found.verdict is Verdict.CORRECTED
    assert found.by_chains
    assert any("chains of" in reason for reason in found.reasons)


def test_chains_that_are_not_enough_correct_nothing(rng):
    """With an error that no chain reaches."""
    found = diagnosed(rng, precise=1e-3, most_moves=64)
    assert found.verdict is Verdict.DO_NOT_TRUST
    assert not found.by_chains


def test_a_result_draws_from_the_chains_and_keeps_them_when_saved(key, tmp_path):
    start = qg.MeanField(jnp.zeros(3), jnp.full(3, math.log(0.5 * STUDENT_STD)))
    result = qg.fit(STUDENT, start, method=qg.Sgd("nocv", steps=1), key=key, progress=False)
    narrow = dataclasses.replace(result, q=start, status=Status.CONVERGED)
    before = narrow.posterior(key, 500)
    assert math.isfinite(before.khat)
    found = narrow.diagnose(seconds=100)
    assert found.by_chains
    assert found.chain_draws is not None
    drawn = narrow.posterior(key, 500)
    assert drawn.reliable
    assert math.isnan(drawn.khat)
    assert {tuple(z) for z in np.asarray(drawn.points)} <= {tuple(z) for z in found.chain_draws.z}
    narrow.save(tmp_path / "narrow.quietgrad")
    loaded = qg.load(tmp_path / "narrow.quietgrad")
    np.testing.assert_array_equal(loaded.posterior(key, 500).points, drawn.points)


@pytest.mark.parametrize("dense", [False, True])
def test_few_states_draw_the_metric_towards_them_and_no_further(dense, rng):
    """States that are all the same say that the posterior is narrower, never that it has no width; many
    states have the last word, whatever the metric before."""
    root = np.array([0.5, 2.0, 1.0])
    old = Metric(np.ones(3), np.diag(root) if dense else root)
    still = _metric_of_states(old, np.full((2, 2, 3), 4.0))
    np.testing.assert_allclose(still.center, 4.0)
    assert np.all(still.std > 0.2 * old.std)
    assert np.all(still.std < old.std)
    std = np.array([3.0, 0.1, 7.0])
    many = _metric_of_states(old, std * rng.standard_normal((400, 40, 3)))
    # 4,000 states that count, and three of the old metric's.
    expected = np.sqrt((4000 * std**2 + 3 * root**2) / 4003)
    np.testing.assert_allclose(many.std, expected, rtol=5 / np.sqrt(8000))
