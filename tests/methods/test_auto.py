"""auto: where it arrives, what it decides, and that it never ends below where it has been."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import quietgrad as qg
from quietgrad.evaluation.elbo_terms import ElboEvaluator
from quietgrad.families import AutoregressiveFlow, Curved
from quietgrad.methods.auto import Fit
from quietgrad.session import Problem, Recorder
from quietgrad.solvers import Annealed


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
    terms = ElboEvaluator(target, pairs=4000, seed=jr.key_data(jr.key(77))).terms(q)
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
    plan = str(qg.Auto(gain=0.25))
    assert "gain: 0.25" in plan
    assert "newton: Newton" in plan
    assert "the mode with its curvature" in story
    assert "Newton steps" in story


def test_newton_steps_that_leave_nothing_are_the_end(fitted):
    """Stochastic steps would need a program of their own, and find nothing."""
    assert fitted.status is qg.Status.CONVERGED
    assert [d.kind for d in fitted.decisions] == ["mode", "newton stop"]
    assert "Newton step is expected to gain" in fitted.hint


def test_where_there_is_no_mode_newton_steps_begin_at_the_search_s_answer():
    """At one, the density is infinite, and a Gaussian there would be narrower than numbers are apart."""
    target = qg.Target.from_logdensity(
        lambda z: -0.5 * jnp.sum(z**2) - 0.4 * jnp.log(jnp.abs(z[0] - 1.0)), dim=2
    )
    result = qg.fit(target, "mean-field", key=jr.key(0))
    kinds = [d.kind for d in result.decisions]
    assert "mode" not in kinds
    assert kinds[:2] in (["search", "newton"], ["search", "newton stop"])
    assert result.status is qg.Status.CONVERGED
    assert result.elbo > result.decisions[0].numbers["elbo"] - 0.5 - 5 * result.elbo_error


@pytest.mark.slow
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
    assert {"search", "mode", "newton", "newton stop"}.isdisjoint(kinds)
    assert {"round", "stop"} & kinds
    assert height(target, walked.q)[0] > height(target, fitted.q)[0] - 0.5


def test_a_fixed_estimator_is_kept(target):
    plain = qg.estimator("nocv", draws=3)
    anneal = Annealed(probe_after=0.0)
    method = qg.Auto(estimator=plain, fixed_draws=False, anneal=anneal, steps=4000)
    result = qg.fit(target, method=method, key=jr.key(1))
    assert result.estimator == plain
    assert "choose" not in [d.kind for d in result.decisions]


@pytest.mark.turns(2)
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


def test_a_family_that_holds_no_mean_field_solution_takes_stochastic_steps(target):
    result = qg.fit(target, "real-nvp", method=qg.Auto(steps=1500, by_clock=False), key=jr.key(4))
    kinds = [d.kind for d in result.decisions]
    assert set(kinds) <= {"round", "take back", "stop", "choose"}
    first = result.history["elbo"][0]
    assert result.elbo > first + 1


def test_the_ladder_stops_where_nothing_is_to_be_gained():
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2 * jnp.array([1.0, 9.0])), dim=2)
    result = qg.fit(target, "auto", key=jr.key(0))
    assert isinstance(result.q, qg.MeanField)
    assert [d.kind for d in result.decisions][-2:] == ["simpler", "enough"]
    assert result.status is qg.Status.CONVERGED


def test_the_ladder_climbs_to_a_gaussian_with_correlations():
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2) - 20.0 * (z[0] - z[1]) ** 2, dim=3)
    result = qg.fit(target, "auto", key=jr.key(0))
    assert isinstance(result.q, qg.FullRank)
    assert [d.kind for d in result.decisions][-2:] == ["newton stop", "enough"]


@pytest.mark.slow
def test_the_ladder_climbs_to_a_bend_that_is_a_banana():
    """Its log evidence is known: log(2 pi 0.3)."""
    target = qg.Target.from_logdensity(
        lambda z: -0.5 * z[0] ** 2 - 0.5 * ((z[1] - z[0] ** 2) / 0.3) ** 2, dim=2
    )
    result = qg.fit(target, "auto", key=jr.key(0))
    assert isinstance(result.q, Curved | AutoregressiveFlow)
    assert abs(result.elbo - np.log(2 * np.pi * 0.3)) < 0.01 + 5 * result.elbo_error


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


@pytest.mark.turns(2)
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


def batched():
    x = jr.normal(jr.key(0), (600, 2))
    y = (x[:, 0] > 0).astype(x.dtype)
    return qg.Target(
        lambda z: -0.5 * jnp.sum(z**2),
        lambda z, data: data[1] * (data[0] @ z) - jnp.logaddexp(data[0] @ z, 0.0),
        (x, y),
        dim=2,
    )


@pytest.mark.parametrize("batch_size", [None, 32])
@pytest.mark.parametrize("least", [0.1, 5.0])
def test_what_is_worth_going_on_for_grows_with_the_coordinates_and_faster_on_minibatches(
    least, batch_size
):
    auto = qg.Auto(gain=least, gain_each=0.2, gain_each_in_batches=0.7)
    problem = Problem(batched(), qg.MeanField(jnp.zeros(2), jnp.zeros(2)), batch_size)
    found = Fit(auto, problem, Recorder(problem, key=jr.key(0))).gain
    assert found == max(least, 2 * (0.2 if batch_size is None else 0.7))


@pytest.mark.turns(2)
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


@pytest.mark.parametrize("family", ["mean-field", "full-rank"])
def test_newton_steps_leave_the_rim_between_two_modes(family):
    """Around 0.8 a Newton step is expected to gain 0.003 nats, and each one after it as many; the top of
    the ELBO, by quadrature -9.235, is at 8.64."""
    data = jnp.array([-1.0, 0.5, 8.0, 9.0, 9.5])
    target = qg.Target.from_logdensity(
        lambda z: -jnp.sum(jnp.log1p((data - z[0]) ** 2)) - 0.5 * (z[0] / 100) ** 2, dim=1
    )
    result = qg.fit(target, family, key=jr.key(0))
    assert result.status == "converged"
    assert result.elbo == pytest.approx(-9.235, abs=5 * result.elbo_error + 0.05)
