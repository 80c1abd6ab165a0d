"""auto: where it arrives, what it decides, and that it never ends below where it has been."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import quietgrad as qg
from quietgrad.families import WhitenedRealNVP
from quietgrad.judging import Judge
from quietgrad.methods.auto import ladder, stage
from quietgrad.methods.auto.anneal import MOST_LOSSES, anneal
from quietgrad.methods.auto.stage import Runner
from quietgrad.recorder import Problem, Recorder


def skewed(z):
    """A log density with curvature that changes, and scales far from one."""
    return (
        -0.5 * jnp.sum((z / jnp.array([0.1, 1.0, 5.0])) ** 2) - jnp.exp(0.3 * z[0]) - jnp.exp(0.2 * z[2])
    )


@pytest.fixture(scope="module")
def target():
    return qg.Target.from_logdensity(skewed, dim=3)


@pytest.fixture(scope="module")
def fitted(target):
    return qg.fit(target, method=qg.Auto(by_clock=False), key=jr.key(1))


def height(target, q):
    """The ELBO at draws that nobody has seen, and its error."""
    terms = Judge(target, pairs=4000, seed=jr.key_data(jr.key(77))).terms(q)
    return terms.elbo, terms.error


def test_reaches_what_a_long_decayed_run_reaches(target, fitted):
    steps = 8000
    rule = optax.adam(optax.cosine_decay_schedule(0.05, steps))
    long = qg.fit(target, method=qg.Sgd("quiet", rule, steps), key=jr.key(2))
    (ours, error), (theirs, _) = height(target, fitted.q), height(target, long.q)
    # The stopping rule promises half a nat; a paired difference has less error than either.
    assert ours > theirs - 0.5 - error
    assert fitted.status is qg.Status.CONVERGED


def test_can_be_repeated_exactly(target, fitted):
    again = qg.fit(target, method=qg.Auto(by_clock=False), key=jr.key(1))
    assert eqx.tree_equal(again.q, fitted.q)
    assert [str(d) for d in again.decisions] == [str(d) for d in fitted.decisions]
    assert again.programs == 0


def test_explains_itself(fitted):
    story = fitted.explain()
    assert story.startswith("step ")
    assert "the mode with its curvature" in story
    assert "Newton steps" in story


def test_compiles_few_programs():
    """A count, not a time: what the user waits for when a model is fitted for the first time."""
    for number, name in enumerate(("mean-field", "low-rank", "full-rank", "real-nvp-affine")):
        # A density of its own for each: the same one would find its programs compiled.
        tilt = 0.1 + 0.01 * number
        fresh = qg.Target.from_logdensity(
            lambda z, tilt=tilt: -jnp.sum(jnp.cosh(z)) - tilt * jnp.sum(z), dim=5
        )
        result = qg.fit(fresh, name, method=qg.Auto(steps=2000), key=jr.key(0))
        assert 0 < result.programs <= 12, name


def test_without_fixed_draws_only_stochastic_steps_are_taken(target, fitted):
    walked = qg.fit(target, method=qg.Auto(fixed_draws=False, by_clock=False), key=jr.key(1))
    kinds = {d.kind for d in walked.decisions}
    assert {"climb", "newton", "newton stop"}.isdisjoint(kinds)
    assert {"noise", "level"} & kinds
    assert height(target, walked.q)[0] > height(target, fitted.q)[0] - 0.5


def test_a_fixed_estimator_is_kept(target):
    plain = qg.estimator("nocv", draws=3)
    method = qg.Auto(estimator=plain, fixed_draws=False, probe_after=0.0, steps=4000)
    result = qg.fit(target, method=method, key=jr.key(1))
    assert result.estimator == plain
    assert "choose" not in [d.kind for d in result.decisions]


@pytest.mark.parametrize("family", ["low-rank", "full-rank", "real-nvp-affine"])
def test_a_richer_family_never_ends_below_the_mean_field_one(family, target, fitted):
    result = qg.fit(target, family, method=qg.Auto(by_clock=False, steps=2000), key=jr.key(4))
    assert {"embed", "mode"} & {d.kind for d in result.decisions}
    assert height(target, result.q)[0] > height(target, fitted.q)[0] - 0.5


def test_the_neck_of_a_funnel_is_no_answer():
    """Centred effects with an unknown scale: the density has no highest point, and the mode is where the
    scale is zero. A Gaussian there fits its surroundings and is far below the mean-field solution."""
    y = jnp.linspace(-0.5, 0.5, 30)

    def log_density(z):
        std = jnp.exp(z[1])
        effects = -0.5 * jnp.sum(((z[2:] - z[0]) / std) ** 2) - 30 * z[1]
        return z[1] - 0.5 * std**2 - 0.02 * z[0] ** 2 + effects - 4 * jnp.sum((y - z[2:]) ** 2)

    target = qg.Target.from_logdensity(log_density, dim=32)
    simple, full = (qg.fit(target, family, key=jr.key(0)) for family in ("mean-field", "full-rank"))
    assert full.elbo > simple.elbo
    assert np.asarray(full.q.mean())[1] > -5


def test_a_family_that_holds_no_mean_field_solution_explores(target):
    result = qg.fit(target, "real-nvp", method=qg.Auto(steps=1500, by_clock=False), key=jr.key(4))
    kinds = [d.kind for d in result.decisions]
    assert "climb" not in kinds
    assert {"go on", "noise", "level", "roll back"} & set(kinds)


def test_the_ladder_stops_where_nothing_is_to_be_gained():
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2 * jnp.array([1.0, 9.0])), dim=2)
    result = qg.fit(target, "auto", key=jr.key(0))
    assert isinstance(result.q, qg.MeanField)
    assert [d.kind for d in result.decisions][1] == "enough"
    assert result.status is qg.Status.CONVERGED


def test_a_richer_family_that_does_not_pay_is_not_taken(begun, monkeypatch):
    """What it gains is within its noise: the answer of the simpler family is chosen again."""
    run, at = begun
    richer = qg.FullRank.init(3, key=jr.key(0))
    found = at.answer._replace(q=richer)
    chosen, kinds, ending = [], [], (qg.Status.CONVERGED, "as the richer one ended")
    monkeypatch.setattr(type(run.recorder), "best", found)
    monkeypatch.setattr(type(run.recorder), "choose", lambda _, answer: chosen.append(answer) or answer)
    monkeypatch.setattr(Runner, "note", lambda _, kind, *__, **___: kinds.append(kind))
    monkeypatch.setattr(ladder, "paired", lambda *_: (0.1, 0.1))
    answer = at.answer._replace(terms=at.answer.terms._replace(variance=100.0))
    assert ladder.up(run, answer, [richer], lambda *_: ending) is None
    assert kinds == ["not up"]
    assert [each.q for each in chosen] == [answer.q]
    monkeypatch.setattr(ladder, "paired", lambda *_: (0.3, 0.1))
    assert ladder.up(run, answer, [richer], lambda *_: ending) == ending


def test_the_ladder_climbs_to_a_gaussian_with_correlations():
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2) - 20.0 * (z[0] - z[1]) ** 2, dim=3)
    result = qg.fit(target, "auto", key=jr.key(0))
    assert isinstance(result.q, qg.FullRank)
    assert [d.kind for d in result.decisions][-2:] == ["up", "enough"]


def test_the_ladder_climbs_to_a_flow_that_follows_a_banana():
    """Its log evidence is known: log(2 pi 0.3)."""
    target = qg.Target.from_logdensity(
        lambda z: -0.5 * z[0] ** 2 - 0.5 * ((z[1] - z[0] ** 2) / 0.3) ** 2, dim=2
    )
    result = qg.fit(target, "auto", key=jr.key(0))
    assert isinstance(result.q, WhitenedRealNVP)
    assert abs(result.elbo - np.log(2 * np.pi * 0.3)) < 0.1 + 5 * result.elbo_error


def test_only_methods_that_choose_can_be_asked_for_any_family(target):
    with pytest.raises(ValueError, match=r"family='auto' needs a method that chooses one \(auto\)"):
        qg.fit(target, "auto", method="sgd", key=jr.key(0))


def affine(key, condition):
    """A random affine map of three coordinates, and what it adds to the log density."""
    keys = jr.split(key, 3)
    left, right = (jnp.linalg.qr(jr.normal(k, (3, 3)))[0] for k in keys[:2])
    scales = condition ** jnp.linspace(-0.5, 0.5, 3)
    return left @ jnp.diag(scales) @ right, 5 * jr.normal(keys[2], (3,))


def straight(z):
    """No Gaussian, and its tails do not overflow however far out a start is."""
    return -3.0 * jnp.sum(jnp.logaddexp(z, -0.5 * z)) - 0.2 * jnp.sum(z) ** 2


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6])
def test_affine_maps_of_the_target_do_not_change_a_full_rank_fit(condition, key):
    """ELBOs of a target and of the same target in other coordinates are equal up to the determinant."""
    matrix, shift = affine(key, condition)
    inverse, log_det = jnp.linalg.inv(matrix), jnp.linalg.slogdet(matrix)[1]
    plain = qg.Target.from_logdensity(straight, dim=3)
    mapped = qg.Target.from_logdensity(lambda z: straight(inverse @ (z - shift)) - log_det, dim=3)
    results = [qg.fit(t, "full-rank", key=jr.key(0)) for t in (plain, mapped)]
    elbos = [height(t, r.q)[0] for t, r in zip((plain, mapped), results, strict=True)]
    assert abs(elbos[0] - elbos[1]) < 0.1
    assert all(r.status is qg.Status.CONVERGED for r in results)


@pytest.fixture
def begun(target):
    """A runner and a stage at a good answer."""
    q = qg.MeanField(jnp.array([-0.01, 0.0, -1.0]), jnp.log(jnp.array([0.1, 1.0, 3.0])))
    problem = Problem(target, q)
    recorder = Recorder(problem, key=jr.key(0))
    run = Runner(problem, recorder, None, by_clock=False, gain=0.5, probe_after=np.inf)
    return run, run.begin(recorder.look(q, 0), "test")


def test_a_round_that_lost_is_taken_back(begun, monkeypatch):
    """Every window leads far away: the answer before it stays, at ever smaller rates, to a true end."""
    run, at = begun
    real, rates = Runner.window, []

    def astray(self, stage_at, length, first, last):
        rates.append(first)
        after, verdict = real(self, stage_at, length, first, last)
        moved = eqx.tree_at(lambda q: q.loc, verdict.found.q, verdict.found.q.loc + 50.0)
        found = verdict.found._replace(q=moved, terms=self.recorder.terms(moved))
        gain, error = stage.paired(found.terms, stage_at.answer.terms)
        carry = after.carry._replace(params=eqx.filter(moved, eqx.is_inexact_array))
        return after._replace(carry=carry), verdict._replace(found=found, gain=gain, gain_error=error)

    monkeypatch.setattr(Runner, "window", astray)
    after, end = anneal(run, at, (0.02, 0.02), 10, 10_000, gain=0.5)
    assert end == "lost"
    assert len(rates) == MOST_LOSSES
    np.testing.assert_allclose(rates, 0.02 * 0.5 ** np.arange(MOST_LOSSES))
    assert after.answer.q is at.answer.q
    assert eqx.tree_equal(after.carry.params, at.carry.params)
    assert run.recorder.answer.q is at.answer.q


@pytest.mark.parametrize(
    ("gain", "error", "steps", "ends", "goes_on"),
    [
        # The judge cannot tell a gain from a loss: rounds go on, from the later and longer one.
        pytest.param(-6.0, 4.0, 100, "out of steps", True, id="a_loss_within_its_noise"),
        # Less than what would be taken back, by a judge that can tell: the answer before it stays.
        pytest.param(-0.01, 0.01, 1000, "rested", False, id="a_small_loss_that_is_no_noise"),
    ],
)
def test_only_a_loss_that_may_be_noise_is_no_sign_of_rest(
    begun, monkeypatch, gain, error, steps, ends, goes_on
):
    run, at = begun
    real = Runner.window

    def judged(self, stage_at, length, first, last):
        after, verdict = real(self, stage_at, length, first, last)
        return after, verdict._replace(gain=gain, gain_error=error)

    monkeypatch.setattr(Runner, "window", judged)
    after, end = anneal(run, at, (0.02, 0.02), 10, steps, gain=0.5)
    assert end == ends
    assert (after.step == steps) is goes_on
    assert after.answer.step == (steps if goes_on else at.answer.step)
    assert (after.answer.q is at.answer.q) is not goes_on


@pytest.mark.parametrize(
    ("gains", "rounds"),
    [
        # 1.5 after 20 foretells 0.1.
        ((100.0, 20.0, 1.5), 3),
        # 12 after 20 foretells 7, and 2 after 12 a third, which is little enough.
        ((100.0, 20.0, 12.0, 1.5), 4),
        # Two rounds foretell nothing, nor does one after a round that was taken back.
        ((20.0, 1.5, 1.4, 0.1), 4),
        ((100.0, 20.0, -50.0, 1.5, 0.1), 5),
    ],
)
def test_gains_that_fall_steeply_foretell_the_next(begun, monkeypatch, gains, rounds):
    run, at = begun
    real, left = Runner.window, list(gains)

    def judged(self, stage_at, length, first, last):
        after, verdict = real(self, stage_at, length, first, last)
        return after, verdict._replace(gain=left.pop(0), gain_error=0.01)

    monkeypatch.setattr(Runner, "window", judged)
    _, end = anneal(run, at, (0.02, 0.02), 10, 10_000, gain=0.5)
    assert end == "rested"
    assert len(gains) - len(left) == rounds


def test_a_window_keeps_the_better_of_its_average_and_its_end(begun):
    run, at = begun
    after, verdict = run.window(at, 200, 0.05, 0.05)
    heights = [run.recorder.terms(q).elbo for q in (verdict.found.q, after.job.family(after.carry))]
    assert heights[0] >= heights[1]
    gain, _ = stage.paired(verdict.found.terms, at.answer.terms)
    assert verdict.gain == gain
    assert after.answer is at.answer


def test_looking_for_another_estimator_waits_until_it_is_cheap_and_noise_is_left(begun):
    run, at = begun
    run = eqx.tree_at(lambda r: r.by_clock, run, replace=True)
    ready = eqx.tree_at(lambda r: r.probe_after, run, 0.0)
    ready.recorder.clock._spent["optimise"] = 1e6
    at = at._replace(pace=1e-6)
    assert ready.probe_due(at, run.gain)
    assert not ready.probe_due(at, 3 * run.gain)
    assert not ready.probe_due(at._replace(pace=1e4), run.gain)
    assert not run.probe_due(at, run.gain)


def test_without_the_clock_looking_waits_for_enough_steps(begun):
    run, at = begun
    looking = stage.burden(at.answer.q, at.job.estimator) / stage.PROBE_SHARE
    run.recorder.clock._spent["optimise"] = 1e6
    assert not run.probe_due(at._replace(step=int(0.9 * looking)), run.gain)
    assert run.probe_due(at._replace(step=int(1.1 * looking)), run.gain)
    assert not run.probe_due(at._replace(step=int(1.1 * looking)), 3 * run.gain)


def batched():
    x = jr.normal(jr.key(0), (600, 2))
    y = (x[:, 0] > 0).astype(x.dtype)
    return qg.Target(
        lambda z: -0.5 * jnp.sum(z**2),
        lambda z, data: data[1] * (data[0] @ z) - jnp.logaddexp(data[0] @ z, 0.0),
        (x, y),
        dim=2,
    )


@pytest.mark.parametrize("family", ["mean-field", "full-rank"])
def test_minibatches(family):
    target = batched()
    whole = qg.fit(target, family, key=jr.key(2))
    result = qg.fit(target, family, method=qg.Auto(steps=3000), batch_size=32, key=jr.key(2))
    (ours, error), (best, _) = height(target, result.q), height(target, whole.q)
    assert ours > best - 1.0 - 5 * error


@pytest.mark.parametrize("family", ["mean-field", "full-rank"])
def test_a_funnel_s_valley_is_walked_to_its_end(family):
    """Newton steps rest in the neck, where each promises little: means and scales must move together.

    At the best mean-field normal the mean of v is 0, 1 / var v = 1/9 + 1/2 and log var z = -var v / 2.
    """
    target = qg.Target.from_logdensity(
        lambda z: -((z[0] / 3) ** 2) / 2 - z[1] ** 2 * jnp.exp(-z[0]) / 2 - z[0] / 2, dim=2
    )
    result = qg.fit(target, family, key=jr.key(0))
    variance = 18 / 11
    best = np.log(2 * np.pi) + 1 + (np.log(variance) - variance / 2) / 2 - variance / 18 - 0.5
    assert result.status == "converged"
    assert result.elbo > best - 0.5 - 3 * result.elbo_error
    assert "valley" in [decision.kind for decision in result.decisions]
