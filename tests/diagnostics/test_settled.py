"""How well averages over chains are known, when they are enough, and which of their states are kept."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

from quietgrad import Target
from quietgrad.diagnostics.budget import Budget
from quietgrad.diagnostics.charts import PlainChart
from quietgrad.diagnostics.draws import Draws
from quietgrad.diagnostics.long_chains import Begun, Settled, run_on, settled
from quietgrad.diagnostics.metric import Metric
from quietgrad.diagnostics.settings import Diagnostics
from quietgrad.diagnostics.watched import Watched
from quietgrad.evaluation.points import Points

SETTINGS = Diagnostics()
FLOAT = np.dtype(float)
# sds of 1 and 100.
SCALES = np.array([1.0, 100.0])
UNEVEN = Target.from_logdensity(lambda z: -0.5 * jnp.sum((z / SCALES) ** 2), dim=2)


def watching(target=UNEVEN):
    dim, rng = target.dim, np.random.default_rng(0)
    z = rng.standard_normal((50, dim))
    return Watched(target, FLOAT, Draws(z, z, z[:, 0], z[:, 0], z, 1), rng)


def known(z):
    return settled(watching(), z, SETTINGS)


def test_independent_states_are_worth_their_number():
    """16 of each of 200 chains. A variance of 200 averages has a relative sd of sqrt(2 / 199), the sd of
    the log of an sd is 1 / sqrt(2 * 3200)."""
    z = np.random.default_rng(1).standard_normal((16, 200, 2))
    found = known(z)
    spread = 5 * math.sqrt(2 / 199)
    assert abs(math.log(found.effective / 3200)) < spread
    assert abs(math.log(found.scale_error * math.sqrt(6400))) < spread
    assert found.drift < 1


def test_units_do_not_change_what_is_known():
    z = np.random.default_rng(2).standard_normal((10, 30, 2))
    plain, rescaled = known(z), known(z * np.array([1e-4, 30.0]) + np.array([1.0, -5.0]))
    np.testing.assert_allclose(rescaled[:3], plain[:3], rtol=1e-6)


@pytest.mark.parametrize("slow", [0, 1])
def test_the_number_that_is_known_least_is_named(slow):
    """A coordinate in which chains do not move at all is worth as many draws as there are chains."""
    rng = np.random.default_rng(3)
    z = rng.standard_normal((20, 200, 2))
    z[..., slow] = rng.standard_normal(200)
    found = known(z)
    assert found.name == watching().name(slow)
    assert found.name != watching().name(1 - slow)
    assert abs(math.log(found.effective / 200)) < 5 * math.sqrt(2 / 199)


def test_each_limit_is_an_objection_by_itself():
    """As far as settings say: a fifth of the tolerance of means and log sds."""
    worth = 1 / (SETTINGS.precise * SETTINGS.mean) ** 2
    scale = SETTINGS.precise * SETTINGS.wide
    fine = Settled(1.1 * worth, 0.9 * scale, 0.9, "a")
    assert not fine.objection(0.9 * SETTINGS.most_diverged, SETTINGS)
    assert "diverge" in fine.objection(1.1 * SETTINGS.most_diverged, SETTINGS)
    assert "draws only" in fine._replace(effective=0.9 * worth).objection(0.0, SETTINGS)
    assert "an sd" in fine._replace(scale_error=1.1 * scale).objection(0.0, SETTINGS)
    assert "still move" in fine._replace(drift=1.1).objection(0.0, SETTINGS)
    # More moves mend noise and drift.
    assert fine._replace(effective=0.6 * worth, drift=2.0).within_reach(1.0, 0.0, SETTINGS)
    assert not fine._replace(effective=0.4 * worth).within_reach(1.0, 0.0, SETTINGS)


def ran(start, metric, seed=4, **settings):
    points = Points(UNEVEN, FLOAT)
    begun = Begun(PlainChart(points), metric, start)
    chosen = dataclasses.replace(SETTINGS, **settings)
    found = run_on(begun, watching(), np.random.default_rng(seed), chosen, Budget())
    assert found is not None
    return found


def creeping(most, **settings):
    """64 chains from far out whose steps are so short that they come nearer and never arrive: no
    warm-up, and chains that nobody calls enough."""
    start = np.tile(1000 * SCALES, (64, 1))
    metric = Metric(np.zeros(2), 1e-2 * SCALES)
    more = {"tried_moves": 10**6, "precise": 1e-9, "warm_up": (), "first_moves": 4, **settings}
    return ran(start, metric, most_moves=most, **more)


def test_the_later_half_of_the_moves_is_kept():
    first, second = creeping(4), creeping(8)
    assert (first.moves, second.moves) == (4, 8)
    assert (len(first.z), len(second.z)) == (2 * 64, 4 * 64)
    assert not second.enough
    # Moves 3 and 4, and 5 to 8 of the same chains, which come nearer all the time.
    assert not {*first.z[:, 0]} & {*second.z[:, 0]}
    assert np.max(second.z[:, 0]) < np.max(first.z[:, 0])


def test_moves_and_numbers_have_limits():
    assert creeping(40).moves == 32
    assert creeping(2**20, most_numbers=3 * 64 * 2 * 20).moves == 16
    assert len(creeping(16, judged_moves=4).z) == 4 * 64


@pytest.mark.parametrize(("tried", "moves"), [(8, 8), (9, 16)])
def test_chains_end_early_where_all_moves_would_not_be_enough(tried, moves):
    """Once they were tried for so many moves."""
    assert creeping(40, tried_moves=tried).moves == moves


def test_chains_go_on_as_long_as_moves_that_are_left_would_be_enough():
    """Few, from the posterior's own draws: worth too little at first, and enough in the end."""
    start = SCALES * np.random.default_rng(7).standard_normal((16, 2))
    found = ran(start, Metric(np.zeros(2), SCALES), first_moves=4, tried_moves=1, warm_up=())
    assert found.enough, found.why
    assert 4 < found.moves < SETTINGS.most_moves


def test_draws_come_in_no_order():
    """A rank correlation of 512 shuffled numbers has an sd of 1 / sqrt(511)."""
    z = creeping(16).z[:, 0]
    ranks = np.argsort(np.argsort(z))
    correlation = np.corrcoef(ranks, np.arange(len(z)))[0, 1]
    assert abs(correlation) < 5 / math.sqrt(len(z) - 1)


@pytest.mark.parametrize("dense", [True, False])
def test_chains_find_their_scales(dense):
    """From the posterior's own draws in a metric that is a hundred times too narrow for one of them: had
    they kept it, or its inverse, each chain would be worth one draw there."""
    start = SCALES * np.random.default_rng(5).standard_normal((96, 2))
    root = np.eye(2) if dense else np.ones(2)
    found = ran(start, Metric(np.zeros(2), root), warm_up=(8, 16, 16), most_moves=64)
    assert found.effective > 5 * found.chains
    std = np.std(found.z, axis=0)
    assert np.all(np.abs(np.log(std / SCALES)) < 5 * found.scale_error)


def test_few_states_do_not_decide_a_metric_alone():
    """One chain that stays where it is, in sixty coordinates: its scales must not become zero."""
    far = Target.from_logdensity(lambda z: jnp.where(jnp.sum(z**2) < 1e-300, 0.0, -jnp.inf), dim=60)
    points = Points(far, FLOAT)
    begun = Begun(PlainChart(points), Metric(np.zeros(60), np.ones(60)), np.zeros((4, 60)))
    settings = dataclasses.replace(SETTINGS, first_moves=4, most_moves=4)
    found = run_on(begun, watching(far), np.random.default_rng(6), settings, Budget())
    assert found is not None
    assert not found.enough
    np.testing.assert_array_equal(found.z, 0.0)
