"""Fits from several starts: the best is kept, agreement and disagreement are told."""

import signal
import time

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.diagnostics.diagnosis import Verdict
from quietgrad.fitting import restarts
from quietgrad.fitting.single import problem_of
from quietgrad.methods.gaussian import Curvature

GAUSSIAN = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(jnp.arange(1.0, 4) * (z - 1) ** 2), dim=3)


def two_modes(height):
    """Gaussians at -4 and 4, the second higher by `height` nats and so narrow that they meet at 0."""
    # Arrays, so that all heights share their programs.
    height, precision = jnp.asarray(height), jnp.asarray(1 + height / 8)

    def log_density(z):
        around = jnp.stack([-0.5 * (z[0] + 4) ** 2, height - 0.5 * precision * (z[0] - 4) ** 2])
        return jnp.logaddexp(*around) - 0.5 * jnp.sum(z[1:] ** 2)

    return qg.Target.from_logdensity(log_density, dim=2)


def agreement(result):
    assert result.restarts is not None
    return result.restarts


def test_starts_that_agree_are_finished_once(key):
    result = qg.fit(GAUSSIAN, restarts=5, key=key)
    assert result.status is qg.Status.CONVERGED
    assert len(agreement(result)) == 5
    assert {start.answer for start in agreement(result).starts} == {agreement(result).best}
    assert max(start.distance for start in agreement(result).starts) < restarts.SAME_SDS
    assert sorted(start.status for start in agreement(result).starts) == ["converged"] + 4 * ["same"]
    assert "5 starts led to the same answer" in result.explain()
    assert "4 restarts agree, or ended lower" in result.diagnose().reasons


@pytest.mark.parametrize("curved", [True, False])
def test_the_higher_mode_is_kept_and_the_other_one_told_of(curved, key):
    # Beyond some dimensions there are no Hessians, and searches at few draws take the place of modes.
    method = qg.Auto() if curved else qg.Auto(curvature=Curvature(mean_field_dim=0))
    result = qg.fit(two_modes(height=3.0), method=method, restarts=8, key=key)
    best = agreement(result).starts[agreement(result).best]
    np.testing.assert_allclose(np.asarray(result.q.mean())[0], 4, atol=5 * best.error + 0.1)
    other = [start for start in agreement(result).starts if start.answer != agreement(result).best]
    assert other
    for start in other:
        # Means 8 apart, and the scale of the wider one is 1.
        assert start.distance == pytest.approx(8, abs=1)
        # What the narrow one is higher by, less what it loses in width.
        mass = 3 - 0.5 * np.log(1 + 3 / 8)
        assert best.elbo - start.elbo == pytest.approx(mass, abs=5 * (best.error + start.error) + 0.1)
    assert "2 different answers" in result.explain()


def test_a_mode_far_behind_is_not_finished(key):
    result = qg.fit(two_modes(height=20.0), restarts=8, key=key)
    statuses = {start.status for start in agreement(result).starts}
    assert statuses == {"converged", "same", "behind"}
    assert "(not finished)" in str(agreement(result))


def test_a_diagnosis_reads_them(key):
    equal = qg.fit(two_modes(height=0.0), restarts=8, key=key).diagnose()
    assert equal.verdict is Verdict.DO_NOT_TRUST
    assert any("a restart that is as good ends" in reason for reason in equal.reasons)


def test_other_methods_fit_in_turns(key):
    method = qg.Sgd(steps=400, evaluate_every=100)
    result = qg.fit(two_modes(height=3.0), method=method, restarts=4, key=key)
    found = agreement(result)
    assert all(start.status in ("converged", "budget") for start in found.starts)
    best = found.starts[found.best]
    # Common draws found it the best; the ELBOs are those of each fit's own draws at its end.
    assert all(best.elbo > start.elbo - 5 * (best.error + start.error) for start in found.starts)
    assert result.elbo == found.starts[found.best].elbo
    # The first start is the one of a fit without restarts.
    alone = qg.fit(two_modes(height=3.0), method=method, key=key)
    assert found.starts[0].elbo == alone.elbo


@pytest.mark.parametrize("family", ["full-rank", "instance"])
def test_starts_are_different_for_every_kind_of_family(family, key):
    given = qg.MeanField.init(3, key=key) if family == "instance" else family
    problem = problem_of(GAUSSIAN, given, None, key=key)
    starts = restarts.other_starts(problem, 3, key)
    assert len({np.asarray(start.q.mean()).tobytes() for start in starts}) == 3
    assert qg.fit(GAUSSIAN, given, restarts=3, key=key).status is qg.Status.CONVERGED


def test_minibatches(key):
    x = jr.normal(key, (400, 1))
    target = qg.Target(lambda z: -0.5 * z @ z, lambda z, row: -0.5 * (row[:, 0] - z[0]) ** 2, x, dim=1)
    result = qg.fit(target, batch_size=32, restarts=3, key=key)
    assert "3 starts led to the same answer" in str(agreement(result))
    assert float(result.q.mean()[0]) == pytest.approx(float(x.sum()) / 401, abs=0.05)


@pytest.mark.parametrize("bad", [0, -1])
def test_a_number_of_restarts_that_is_none(bad, key):
    with pytest.raises(ValueError, match="restarts must be a whole number of at least 1"):
        qg.fit(GAUSSIAN, restarts=bad, key=key)


def test_an_instance_that_cannot_be_started_elsewhere(key):
    with pytest.raises(ValueError, match="name the family"):
        qg.fit(GAUSSIAN, qg.RealNVP.init(3, key=key), restarts=2, key=key)


def test_time_that_runs_out_leaves_the_best_so_far(key):
    def slow(moment):
        time.sleep(0.05)

    method = qg.Sgd(steps=100, evaluate_every=10)
    qg.fit(GAUSSIAN, method=method, key=key)
    result = qg.fit(GAUSSIAN, method=method, restarts=50, seconds=2, callback=slow, key=key)
    left = [start for start in agreement(result).starts if start.status == "not run"]
    assert 0 < len(left) < 50
    assert f"({len(left)} more were not begun)" in str(agreement(result))
    assert np.isfinite(result.elbo)


def test_the_clock_is_that_of_all_starts(key):
    """It has not gone back behind the last moment of the last start, whichever start was the best."""
    moments = []
    method = qg.Sgd(steps=40, evaluate_every=10, by_clock=False)
    result = qg.fit(GAUSSIAN, method=method, restarts=3, callback=moments.append, key=key)
    assert agreement(result).best != 2, "another key, or the last start's own clock would do"
    assert result.clock["optimise"] >= max(moment.seconds for moment in moments)


@pytest.mark.parametrize("method", ["auto", qg.Sgd(steps=40)])
def test_an_interruption_ends_all_of_them(method, key):
    moments = []

    def press(moment):
        # Control-C once; a second one would not wait for an answer.
        if not moments:
            signal.raise_signal(signal.SIGINT)
        moments.append(moment)

    result = qg.fit(GAUSSIAN, method=method, restarts=3, callback=press, key=key)
    assert result.status is qg.Status.INTERRUPTED
    # The fit under way ends where it next looks, and the others are not begun.
    assert len(moments) == 1
