"""fit and stochastic steps: where they arrive, what is recorded, and that chunks change nothing."""

import time

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from subjects import family, target_2d
from test_clock import Hands

import quietgrad as qg
from quietgrad import families
from quietgrad._util.checks import letters
from quietgrad.cli.commands import settings
from quietgrad.fitting import run
from quietgrad.methods import OTHER_NAMES as METHODS_ELSEWHERE
from quietgrad.methods import REGISTRY as METHODS
from quietgrad.session import Evaluation, Problem, Recorder
from quietgrad.session.clock import Clock
from quietgrad.solvers import stochastic

LOC, STD = np.array([1.5, -2.0]), np.array([0.5, 3.0])


def gaussian(z):
    return -0.5 * jnp.sum(((z - LOC) / STD) ** 2)


@pytest.fixture(scope="module")
def target():
    return qg.Target.from_logdensity(gaussian, dim=2)


def always(target, q, method, key, *, batch_size=None, **settings):
    """A fit that evaluates whenever its method would like to, as studies do."""
    problem = Problem(target, q, batch_size)
    settings = {"evaluation": Evaluation(50, 50, share=None), "key": key, **settings}
    return run(problem, method, Recorder(problem, **settings))


@pytest.fixture(scope="module")
def fitted(target):
    q = qg.MeanField.init(2, key=jr.key(0))
    method = qg.Sgd(qg.estimator("nocv", entropy="stl", draws=10), optax.adam(0.05), steps=1000)
    return always(target, q, method, jr.key(1), evaluation=Evaluation(500, 500, share=None))


def test_reaches_the_optimum_of_a_gaussian(fitted):
    """The noise of STL vanishes at the optimum, so what is left of the gap is up to the steps."""
    variance_ratio = np.exp(2 * np.asarray(fitted.q.log_std)) / STD**2
    gap = (np.asarray(fitted.q.loc) - LOC) / STD
    divergence = 0.5 * np.sum(variance_ratio - 1 - np.log(variance_ratio) + gap**2)
    assert divergence < 1e-3
    best = np.log(2 * np.pi) + np.sum(np.log(STD))
    assert abs(fitted.elbo - best) <= divergence + 5 * fitted.elbo_error + 1e-9
    assert fitted.status is qg.Status.CONVERGED


def test_history_has_a_row_for_the_start_and_each_evaluation(fitted):
    assert list(fitted.history) == ["step", "seconds", "wall", "compile", "elbo", "elbo_error"]
    np.testing.assert_array_equal(fitted.history["step"], np.arange(0, 1001, 10))
    assert all(column.shape == (101,) for column in fitted.history.values())
    assert fitted.history["seconds"][0] == 0
    assert np.all(np.diff(fitted.history["seconds"]) > 0)
    assert np.all(np.diff(fitted.history["wall"]) > 0)
    assert fitted.history["elbo"][-1] > fitted.history["elbo"][0]
    assert fitted.steps == 1000


def test_result_says_how_it_went(fitted):
    text = fitted.explain()
    assert "MeanField of dim 2" in text
    assert "1,000 steps" in text
    assert f"converged: {fitted.hint}" in text
    assert "judged 101 times" in text


@pytest.mark.turns(2)
@pytest.mark.parametrize("method", ["auto", "saa", "sgd"])
@pytest.mark.parametrize("name", ["mean-field", "full-rank"])
def test_the_clock_is_the_wall_clock_of_the_call(method, name, key):
    # Other work can hold up the process where only the call itself is outside; hardly three times.
    for dim in (2, 3, 4):
        # Of another dimension each time, so that all compile.
        target = qg.Target.from_logdensity(lambda z: -0.5 * z @ z, dim=dim)
        began = time.perf_counter()
        result = qg.fit(target, name, method=method, key=key)
        wall = time.perf_counter() - began
        parts = [result.clock[phase] for phase in ("compile", "optimise", "evaluate", "other")]
        assert min(parts) >= 0
        assert sum(parts) == pytest.approx(result.clock["total"])
        assert result.clock["total"] <= wall
        # What is outside is the call itself and making the result.
        if wall - result.clock["total"] <= 0.05 + 0.05 * wall:
            return
    pytest.fail(f"the clock has {result.clock['total']:.3f} s of {wall:.3f} s")


def test_steps_are_on_the_clock_of_optimisation_and_evaluations_are_not(target, key, monkeypatch):
    hands, real = Hands(), stochastic._run

    def slow(job, carry, first, last):
        # On the host: subtracting arrays would compile, and compiling is not optimising.
        hands.now += 0.25 * (int(last) - int(first))
        return real(job, carry, first, last)

    def callback(moment):
        hands.now += 100

    monkeypatch.setattr(stochastic, "_run", slow)
    q, method = qg.MeanField.init(2, key=key), qg.Sgd(steps=10, evaluate_every=4)
    # Compiles what there is to compile: that is on a real clock, and would be taken off these hands.
    always(target, q, method, key)
    result = always(target, q, method, key, callback=callback, clock=Clock(hands))
    np.testing.assert_array_equal(result.history["step"], [0, 4, 8, 10])
    np.testing.assert_array_equal(result.history["seconds"], [0, 1, 2, 2.5])
    assert result.clock["evaluate"] == 400
    assert result.clock["total"] == 402.5
    longer = qg.Sgd(steps=100, evaluate_every=4)
    short = always(target, q, longer, key, clock=Clock(hands), optimise_seconds=1.5)
    assert short.steps == 8
    assert short.status is qg.Status.BUDGET


def test_every_step_has_draws_of_its_own(key):
    """With the same draws in each step, plain gradients of a linear target would move by equal steps."""
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((z - 3) ** 2), dim=2)
    q = qg.MeanField(jnp.zeros(2), jnp.zeros(2))
    method = qg.Sgd(qg.estimator("nocv", draws=1), optax.sgd(1e-6), steps=6, evaluate_every=1)
    places = []
    always(target, q, method, key, callback=lambda m: places.append(np.asarray(m.q.loc)))
    moves = np.diff(places, axis=0)
    assert np.unique(np.round(moves / np.abs(moves).max(), 3), axis=0).shape[0] == 6


def test_result_does_not_depend_on_how_steps_are_cut(key):
    q, target = family("mean-field", 2), target_2d("curved")
    runs = [
        always(target, q, qg.Sgd("nocv", steps=60, evaluate_every=every), key, batch_size=2)
        for every in (60, 7, 1)
    ]
    for other in runs[1:]:
        assert eqx.tree_equal(runs[0].q, other.q)
    # The judge's draws are the same, too.
    assert runs[0].history["elbo"][-1] == runs[1].history["elbo"][-1] == runs[2].history["elbo"][60]


def test_result_depends_on_the_key_alone(key):
    q, target = family("mean-field", 2), target_2d("curved")
    method = qg.Sgd(steps=20, evaluate_every=10)
    first, again, other = (qg.fit(target, q, method=method, key=k) for k in (key, key, jr.key(7)))
    assert eqx.tree_equal(first.q, again.q)
    assert first.elbo == again.elbo
    assert not eqx.tree_equal(first.q, other.q)


def test_second_fit_does_not_compile_again(key):
    """Not even with a new optimiser made by the same call, another start and other numbers of steps."""
    target, other, q = target_2d("curved"), target_2d("gaussian"), family("mean-field", 2)
    qg.fit(target, q, method=qg.Sgd(optimizer=optax.adam(1e-2), steps=20), key=key)
    moved = eqx.tree_at(lambda q: q.loc, q, q.loc + 1)
    method = qg.Sgd(optimizer=optax.adam(1e-2), steps=31)
    result = qg.fit(other, moved, method=method, key=jr.key(0))
    assert result.programs == 0
    again = qg.fit(target, q, method=qg.Sgd(optimizer=optax.adam(2e-2), steps=20), key=key)
    assert again.programs > 0


@pytest.mark.parametrize("stateful", ["nocv", "quadcv"])
def test_estimator_state_is_handed_back(stateful, key):
    q, est = family("mean-field", 2), qg.estimator(stateful, draws=4)
    target = target_2d("curved")
    result = qg.fit(target, q, method=qg.Sgd(est, steps=5), key=key)
    start = est.init(target, q)
    assert eqx.tree_equal(result.estimator_state, start) == (stateful == "nocv")
    eqx.filter_eval_shape(est.step, target, result.q, result.estimator_state, key=key)


def test_steps_without_an_optimizer_are_those_of_adam_at_a_hundredth(target, key):
    given = [None, optax.adam(0.01)]
    own, adam = (qg.fit(target, method=qg.Sgd("nocv", each, steps=20), key=key) for each in given)
    assert eqx.tree_equal(own.q, adam.q)


def test_plateau_ends_the_run_early(target, key):
    q, stop = qg.MeanField.init(2, key=key), qg.Plateau(nats=0.5)
    method = qg.Sgd("nocv", optax.adam(0.1), steps=5000, evaluate_every=50, stop=stop)
    result = always(target, q, method, key)
    assert result.status is qg.Status.CONVERGED
    # The verdict wants ten evaluations, the start being one.
    assert 450 <= result.steps < 5000


def test_samples_have_the_form_of_the_targets_points(key):
    def log_density(point):
        return -jnp.sum(point["weights"] ** 2) - point["offset"] ** 2

    example = {"weights": jnp.zeros((2, 3)), "offset": 0.0}
    target = qg.Target.from_logdensity(log_density, example=example)
    result = qg.fit(target, method=qg.Sgd(steps=2), key=key)
    sample = result.sample(key, 11)
    assert {name: x.shape for name, x in sample.items()} == {"weights": (11, 2, 3), "offset": (11,)}
    assert result.sample(key)["offset"].shape == (1000,)


@pytest.mark.parametrize(("show", "quiet"), [(None, True), (False, True), (True, False)])
def test_progress_is_shown_on_request_and_silent_without_a_terminal(target, key, capsys, show, quiet):
    qg.fit(target, method=qg.Sgd(steps=4), progress=show, key=key)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert (shown.err == "") == quiet


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"method": "sda"}, ValueError, "unknown method 'sda'.*saa"),
        ({"family": "mean-feild"}, ValueError, "Did you mean 'mean-field'"),
        ({"seconds": 0}, ValueError, "seconds must be positive"),
        ({"batch_size": 3}, ValueError, "no data to take batches of"),
    ],
)
def test_misuse_says_what_to_do(target, arguments, error, words):
    with pytest.raises(error, match=words):
        qg.fit(target, **{"key": jr.key(0), **arguments})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("autoo", "Did you mean 'auto'?"),
        ("MeanField", "Did you mean 'mean-field'?"),
        ("FULL_RANK", "Did you mean 'full-rank'?"),
        ("low rank", "Did you mean 'low-rank'?"),
        ("advi", "'mean-field', or 'full-rank'"),
        ("fullrank_advi", "Did you mean 'full-rank'?"),
        ("AutoMultivariateNormal", "Did you mean 'full-rank'?"),
        ("laplace", "'full-rank'"),
        ("normalizing-flow", "'real-nvp', 'real-nvp-affine', 'real-nvp-whitened'"),
        ("NUTS", "examples/vi_then_nuts.py"),
    ],
)
def test_a_family_of_another_name_is_recognised(target, given, meant):
    with pytest.raises(ValueError, match=f"unknown family '{given}'; known: arrowhead, auto") as caught:
        qg.fit(target, given, key=jr.key(0))
    assert meant in str(caught.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("advi", "fit(target, 'mean-field')"),
        ("fullrank_advi", "fit(target, 'full-rank')"),
        ("Adam", "qg.Sgd(optimizer=optax.adam(0.01))"),
        ("L-BFGS", "'saa'"),
        ("Batch and Match", "'bam'"),
        ("NUTS", "examples/vi_then_nuts.py"),
        ("atuo", "Did you mean 'auto'?"),
    ],
)
def test_a_method_of_another_name_is_recognised(target, given, meant):
    with pytest.raises(ValueError, match=f"unknown method '{given}'; known: auto, bam") as caught:
        qg.fit(target, method=given, key=jr.key(0))
    assert meant in str(caught.value)
    with pytest.raises(ValueError, match=f"unknown method '{given}'") as caught:
        settings.check(given, "mean-field", {})
    assert meant in str(caught.value)


@pytest.mark.parametrize(
    ("registry", "others"),
    [({*families.REGISTRY, families.ANY_FAMILY}, families.OTHER_NAMES), (METHODS, METHODS_ELSEWHERE)],
    ids=["families", "methods"],
)
def test_names_of_other_libraries_are_no_names_here(registry, others):
    """A name that is registered later must leave the table."""
    assert {letters(name) for name in registry}.isdisjoint(others)
    assert all(letters(name) == name for name in others)


def test_a_family_by_name_needs_to_know_its_dim():
    with pytest.raises(ValueError, match="does not say its dim"):
        qg.fit(qg.Target(lambda z: -z @ z), key=jr.key(0))


def test_settings_of_a_method_are_checked():
    with pytest.raises(ValueError, match="steps must be a whole number"):
        qg.Sgd(steps=0)
    with pytest.raises(TypeError, match="made by optax"):
        qg.Sgd(optimizer=0.01)
    with pytest.raises(ValueError, match="unknown estimator 'noc'"):
        qg.Sgd("noc")
    with pytest.raises(TypeError, match="learning_rate"):
        qg.Auto(learning_rate=0.1)


NOISE = np.random.default_rng(0).normal(size=50)
VERDICTS = {
    "flat": (np.full(50, -3.0), True),
    "falling": (-np.arange(50.0), True),
    "rising": (np.arange(50.0), False),
    "risen, then flat": (np.minimum(np.arange(50.0), 20.0), True),
    "flat under little noise": (0.1 * NOISE, True),
    "flat under much noise": (100 * NOISE, False),
    "flat on average, in leaps": (np.tile([100.0, -100.0], 25), False),
    "too short": (np.full(9, -3.0), False),
    "just long enough": (np.full(10, -3.0), True),
    "not a number": (np.full(50, np.nan), False),
    "infinite": (np.full(50, -np.inf), False),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_plateau(name):
    elbo, arrived = VERDICTS[name]
    assert qg.Plateau().reached(list(elbo)) is arrived


def test_plateau_counts_gains_in_nats():
    """Fifths of ten evaluations each, one nat apart."""
    elbo = [0.0] * 40 + [1.0] * 10
    assert qg.Plateau(nats=1.1).reached(elbo)
    assert not qg.Plateau(nats=0.9).reached(elbo)
