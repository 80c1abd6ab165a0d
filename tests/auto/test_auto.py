"""auto: the decisions and their replay."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import quietgrad as qg
from quietgrad.auto import choose, run
from quietgrad.auto import settings as settings_room
from quietgrad.families import can_embed, embed
from quietgrad.results import History


def skewed(z):
    """A log density with curvature that changes, and scales far from one."""
    return -0.5 * jnp.sum((z / jnp.array([0.1, 1.0, 5.0])) ** 2) - jnp.exp(0.3 * z[0])


@pytest.fixture(scope="module")
def fitted():
    target = qg.Target.from_logdensity(skewed, dim=3)
    q = qg.MeanField.init(3, key=jr.key(0))
    return target, q, qg.fit(target, q, method="auto", by_clock=False, key=jr.key(1))


def test_reaches_what_a_long_decayed_run_reaches(fitted):
    target, q, result = fitted
    steps = 8000
    rule = optax.adam(optax.cosine_decay_schedule(0.05, steps))
    long = qg.fit(target, q, estimator="quiet", optimizer=rule, steps=steps, key=jr.key(2))
    error = np.hypot(result.elbo_error, long.elbo_error)
    # The stopping rule promises half a nat.
    assert result.elbo > long.elbo - 0.5 - 3 * error
    assert result.status is qg.Status.CONVERGED


def test_a_replay_repeats_the_run_exactly(fitted):
    target, q, result = fitted
    again = qg.fit(target, q, method="auto", replay=result.decisions, key=jr.key(1))
    np.testing.assert_array_equal(again.q.loc, result.q.loc)
    assert [d.kind for d in again.decisions] == [d.kind for d in result.decisions]


def test_explains_itself(fitted):
    story = fitted[2].explain()
    assert story.startswith("step ")
    assert "L-BFGS iterations at fixed draws" in story
    assert "not worth another; stop" in story


def test_without_the_climb_the_way_is_stochastic(fitted):
    target, q, result = fitted
    walked = qg.fit(target, q, method="auto", climb=False, by_clock=False, key=jr.key(1))
    assert {"climb"}.isdisjoint(d.kind for d in walked.decisions)
    assert {"noise", "level"} & {d.kind for d in walked.decisions}
    assert walked.elbo > result.elbo - 0.5 - 3 * np.hypot(result.elbo_error, walked.elbo_error)


def test_a_fixed_estimator_is_kept(fitted):
    target, q, _ = fitted
    plain = qg.estimator("nocv", draws=3)
    result = qg.fit(target, q, method="auto", estimator=plain, probe_after=0.0, key=jr.key(1))
    assert result.estimator == plain
    assert "choose" not in [d.kind for d in result.decisions]


def test_the_monitor_sees_every_check(fitted):
    target, q, _ = fitted
    seen = []

    def monitor(q, state, step):
        seen.append(step)
        return {"first": float(q.loc[0])}

    result = qg.fit(target, q, method="auto", monitor=monitor, key=jr.key(1))
    np.testing.assert_array_equal(result.history["step"], seen)
    assert np.all(np.isfinite(result.history["first"]))


def test_probing_changes_to_what_has_the_least_variance_times_cost(monkeypatch, fitted):
    """With a candidate that has hardly any noise in the field, that is what it changes to."""
    target, q, _ = fitted
    silent = qg.Pathwise(sampler="antithetic", entropy="stl", draws=4096)
    field = {choose.name_of(silent): silent}
    monkeypatch.setattr(choose, "candidates", lambda q: field)
    monkeypatch.setattr(run, "candidates", lambda q: field)
    # Look at once, whatever it costs.
    monkeypatch.setattr(run, "DRIFT", np.inf)
    monkeypatch.setattr(run, "PROBE_SHARE", np.inf)
    settings = {"method": "auto", "by_clock": False, "probe_after": 0.0, "key": jr.key(1)}
    stays = qg.fit(target, q, **settings)
    # Pairs of independent draws: half the variance for twice the draws, so more of them never pay.
    assert "choose" not in [d.kind for d in stays.decisions]
    monkeypatch.setattr(choose, "WORTH", 10.0)
    changes = qg.fit(target, q, **settings)
    assert choose.name_of(silent) in [d.estimator for d in changes.decisions if d.kind == "choose"]
    assert changes.estimator == silent
    again = qg.fit(target, q, **settings, replay=changes.decisions)
    np.testing.assert_array_equal(again.q.loc, changes.q.loc)
    # The record says when to change, not the clock.
    later = qg.fit(target, q, method="auto", replay=changes.decisions, key=jr.key(1))
    np.testing.assert_array_equal(later.q.loc, changes.q.loc)


def test_looking_for_another_estimator_waits_until_it_is_cheap_and_noise_is_left(fitted):
    target, q, _ = fitted
    settings, history = settings_room.AutoSettings(), History()
    history.add(0, 1e4, {"elbo": 0.0})
    fit = run.Run(target, settings, None, None, None, (), history, [], [])
    at = fit.place(q, 0, key=jr.key(0))
    drifting, level = 3 * settings.gain, settings.gain
    assert fit.probe_due(at, 1e-6, level)
    assert not fit.probe_due(at, 1e-6, drifting)
    assert not fit.probe_due(at, 1e3, level)
    slow = eqx.tree_at(lambda r: r.compiling, fit, [1e3])
    assert not slow.probe_due(at, 1e-6, level)
    young = eqx.tree_at(lambda r: r.history, fit, History())
    assert not young.probe_due(at, 1e-6, level)


def test_a_gain_lengthens_the_strides_of_low_rank_families_only(fitted):
    target, q, _ = fitted
    settings = {"method": "auto", "by_clock": False, "gain": -1e9, "steps": 4000, "key": jr.key(1)}
    low = qg.fit(target, qg.LowRank.init(3, rank=1, key=jr.key(3)), climb=False, **settings)
    assert max(d.rate for d in low.decisions if d.kind == "round") == settings_room.MOST_RATE
    plain = qg.fit(target, q, **settings)
    assert len({d.rate for d in plain.decisions if d.kind == "round"}) == 1


def test_newton_steps_are_recorded_explained_and_replayed(fitted):
    target, _, _ = fitted
    q, settings = qg.FullRank.init(3, key=jr.key(3)), {"method": "auto", "key": jr.key(1)}
    result = qg.fit(target, q, steps=2000, **settings)
    kinds = [d.kind for d in result.decisions]
    assert kinds[:3] == ["climb", "embed", "newton"]
    taken = result.decisions[2]
    assert f"{taken.numbers['iterations']} Newton steps" in result.explain()
    assert taken.step == taken.numbers["iterations"] + result.decisions[1].step
    again = qg.fit(target, q, replay=result.decisions, **settings)
    np.testing.assert_array_equal(again.q.packed, result.q.packed)
    none = dataclasses.replace(taken, numbers=taken.numbers | {"iterations": 0})
    first = qg.fit(target, q, replay=(*result.decisions[:2], none), **settings)
    assert first.decisions[2].numbers["iterations"] == 0 < taken.numbers["iterations"]


def test_newton_steps_keep_the_limits(fitted):
    target, _, _ = fitted
    q = qg.FullRank.init(3, key=jr.key(3))
    result = qg.fit(target, q, method="auto", seconds=1e-9, key=jr.key(1))
    assert "newton" in [d.kind for d in result.decisions]
    assert next(d for d in result.decisions if d.kind == "newton").numbers["iterations"] == 0


def test_a_run_that_ran_out_of_time_is_replayed_exactly(fitted):
    target, q, whole = fitted
    short = qg.fit(target, q, method="auto", gain=-1e9, seconds=0.05, key=jr.key(1))
    assert short.status is qg.Status.BUDGET
    again = qg.fit(target, q, method="auto", gain=-1e9, replay=short.decisions, key=jr.key(1))
    assert [d.step for d in again.decisions] == [d.step for d in short.decisions]
    np.testing.assert_array_equal(again.q.loc, short.q.loc)


@pytest.mark.parametrize("family", [qg.LowRank, qg.FullRank, qg.AffineRealNVP])
def test_richer_families_start_from_the_mean_field_solution(family, fitted):
    target, _, mean_field = fitted
    q = family.init(3, key=jr.key(3))
    result = qg.fit(target, q, method="auto", by_clock=False, steps=1500, key=jr.key(4))
    assert "embed" in [d.kind for d in result.decisions]
    assert isinstance(result.q, family)
    assert result.elbo > mean_field.elbo - 0.5 - 3 * np.hypot(result.elbo_error, mean_field.elbo_error)


def test_a_target_that_breaks_far_out_is_survived():
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(jnp.log(1.5 - z**2) ** 2), dim=2)
    q = qg.MeanField(loc=jnp.zeros(2), log_std=jnp.full(2, -3.0))
    result = qg.fit(target, q, method="auto", steps=600, key=jr.key(0))
    assert jnp.all(jnp.isfinite(result.q.loc))


def test_minibatches_and_time_limits():
    x = jr.normal(jr.key(0), (64, 2))
    y = (x[:, 0] > 0).astype(x.dtype)
    target = qg.Target(
        lambda z: -0.5 * jnp.sum(z**2),
        lambda z, data: data[1] * (data[0] @ z) - jnp.logaddexp(data[0] @ z, 0.0),
        (x, y),
        dim=2,
    )
    q = qg.MeanField.init(2, key=jr.key(1))
    result = qg.fit(target, q, method="auto", batch_size=16, steps=1000, key=jr.key(2))
    assert result.elbo > float(qg.elbo(target, q, key=jr.key(3)))
    short = qg.fit(target, q, method="auto", seconds=1e-9, key=jr.key(2))
    assert short.status is not qg.Status.NON_FINITE
    assert [d.kind for d in short.decisions][0] == "climb"
    assert len(short.decisions) == 2


def test_unknown_settings_are_refused():
    target = qg.Target.from_logdensity(skewed, dim=3)
    q = qg.MeanField.init(3, key=jr.key(0))
    with pytest.raises(ValueError, match="unknown setting of method 'auto'.*rate"):
        qg.fit(target, q, method="auto", learning_rate=0.1, key=jr.key(0))
    with pytest.raises(ValueError, match=r"unknown method 'sda'.*saa"):
        qg.fit(target, q, method="sda", key=jr.key(0))


@pytest.mark.parametrize("family", [qg.MeanField, qg.LowRank, qg.FullRank, qg.AffineRealNVP, qg.RealNVP])
def test_what_can_embed_says_is_what_embed_does(family):
    start, like = qg.MeanField.init(4, key=jr.key(0)), family.init(4, key=jr.key(1))
    assert can_embed(like) == (embed(start, like, key=jr.key(2)) is not None)
