"""The optimisation loop: where it arrives, what it records, and that chunks and calls change nothing."""

import types

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from subjects import TRACES, family, target_2d

import quietgrad as qg
from quietgrad import loop

LOC, STD = np.array([1.5, -2.0]), np.array([0.5, 3.0])


def gaussian(z):
    return -0.5 * jnp.sum(((z - LOC) / STD) ** 2)


@pytest.fixture(scope="module")
def target():
    return qg.Target.from_logdensity(gaussian, dim=2)


@pytest.fixture(scope="module")
def fitted(target):
    q = qg.MeanField.init(2, key=jr.key(0))
    est, adam = qg.estimator("nocv", entropy="stl", draws=10), optax.adam(0.05)
    return qg.fit(target, q, estimator=est, optimizer=adam, steps=1000, key=jr.key(1))


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
    assert list(fitted.history) == ["step", "seconds", "elbo", "elbo_error"]
    np.testing.assert_array_equal(fitted.history["step"], np.arange(0, 1001, 10))
    assert all(column.shape == (101,) for column in fitted.history.values())
    assert fitted.history["seconds"][0] == 0
    assert np.all(np.diff(fitted.history["seconds"]) > 0)
    assert fitted.seconds == fitted.history["seconds"][-1]
    assert fitted.history["elbo"][-1] > fitted.history["elbo"][0]
    assert fitted.steps == 1000


def test_result_says_how_it_went(fitted):
    text = str(fitted)
    assert "MeanField of dim 2" in text
    assert "1,000 steps" in text
    assert f"converged: {fitted.hint}" in text


class Clock:
    """Time that passes only where the test says so."""

    def __init__(self, monkeypatch, *, compile_time, step_time, evaluation_time):
        self.now = 0.0
        monkeypatch.setattr(loop, "time", types.SimpleNamespace(perf_counter=lambda: self.now))
        run, evaluate = loop._run, loop.elbo_with_error

        def slow_run(job, carry, first, last):
            self.now += compile_time if first == last else step_time * int(last - first)
            return run(job, carry, first, last)

        def slow_evaluation(*args, **settings):
            self.now += evaluation_time
            return evaluate(*args, **settings)

        monkeypatch.setattr(loop, "_run", slow_run)
        monkeypatch.setattr(loop, "elbo_with_error", slow_evaluation)


def test_seconds_leave_out_compilation_and_evaluation(target, monkeypatch, key):
    Clock(monkeypatch, compile_time=1000.0, step_time=0.25, evaluation_time=100.0)
    q = qg.MeanField.init(2, key=key)
    result = qg.fit(target, q, steps=10, evaluate_every=4, key=key)
    np.testing.assert_array_equal(result.history["step"], [0, 4, 8, 10])
    np.testing.assert_array_equal(result.history["seconds"], [0, 1, 2, 2.5])
    assert result.compile_seconds == 1000


def test_seconds_can_be_the_budget(target, monkeypatch, key):
    Clock(monkeypatch, compile_time=1000.0, step_time=0.25, evaluation_time=100.0)
    q = qg.MeanField.init(2, key=key)
    result = qg.fit(target, q, steps=100, evaluate_every=4, seconds=1.5, key=key)
    assert result.steps == 8


def test_result_does_not_depend_on_how_steps_are_cut(key):
    q, target = family("mean-field", 2), target_2d("curved")
    runs = [
        qg.fit(target, q, steps=60, evaluate_every=every, batch_size=2, key=key) for every in (60, 7, 1)
    ]
    for other in runs[1:]:
        assert eqx.tree_equal(runs[0].q, other.q)
    # The same step is evaluated with the same draws, too.
    assert runs[0].history["elbo"][-1] == runs[1].history["elbo"][-1] == runs[2].history["elbo"][60]


def test_result_depends_on_the_key_alone(key):
    q, target = family("mean-field", 2), target_2d("curved")
    first, again, other = (
        qg.fit(target, q, steps=20, evaluate_every=10, key=k) for k in (key, key, jr.key(7))
    )
    assert eqx.tree_equal(first.q, again.q)
    assert first.elbo == again.elbo
    assert not eqx.tree_equal(first.q, other.q)


def test_second_fit_does_not_compile_again(key, monkeypatch):
    """Not even with a new optimiser made by the same call, another start and other numbers of steps."""
    target, q = target_2d("curved"), family("mean-field", 2)
    qg.fit(target, q, optimizer=optax.adam(1e-2), steps=20, key=key)
    monkeypatch.setattr(qg.Target, "check", lambda self, dim: None)
    before = TRACES[0]
    moved = eqx.tree_at(lambda q: q.loc, q, q.loc + 1)
    qg.fit(target_2d("gaussian"), moved, optimizer=optax.adam(1e-2), steps=31, key=jr.key(0))
    assert TRACES[0] == before
    qg.fit(target, q, optimizer=optax.adam(2e-2), steps=20, key=key)
    assert TRACES[0] > before


def test_only_the_empty_chunk_compiles(key, monkeypatch):
    traces, run = [], loop._run

    def counted(*args):
        before = TRACES[0]
        out = run(*args)
        traces.append(TRACES[0] - before)
        return out

    monkeypatch.setattr(loop, "_run", counted)
    q, rate = family("mean-field", 2), optax.adam(3e-3)
    qg.fit(target_2d("curved"), q, optimizer=rate, steps=10, evaluate_every=4, key=key)
    assert traces[0] > 0
    assert traces[1:] == [0, 0, 0]


@pytest.mark.parametrize("stateful", ["nocv", "quadcv"])
def test_estimator_state_is_handed_back(stateful, key):
    q, est = family("mean-field", 2), qg.estimator(stateful, draws=4)
    target = target_2d("curved")
    result = qg.fit(target, q, estimator=est, steps=5, key=key)
    start = est.init(target, q)
    assert eqx.tree_equal(result.estimator_state, start) == (stateful == "nocv")
    est.step(target, result.q, result.estimator_state, key=key)


def test_plateau_ends_the_run_early(target, key):
    q = qg.MeanField.init(2, key=key)
    adam = optax.adam(0.1)
    stop = qg.Plateau(nats=0.5)
    result = qg.fit(target, q, optimizer=adam, steps=5000, evaluate_every=50, stop=stop, key=key)
    assert result.status is qg.Status.CONVERGED
    # The verdict wants ten evaluations, the start being one.
    assert 450 <= result.steps < 5000


def test_monitor_adds_columns_off_the_clock(target, key):
    q = qg.MeanField.init(2, key=key)
    seen = []

    def monitor(q, state, step):
        seen.append(step)
        return {"first": float(q.loc[0])} if step else {}

    result = qg.fit(target, q, steps=6, evaluate_every=2, monitor=monitor, key=key)
    assert seen == [0, 2, 4, 6]
    first = result.history["first"]
    assert np.isnan(first[0])
    assert first[-1] == result.q.loc[0]


def test_samples_have_the_form_of_the_targets_points(key):
    def log_density(point):
        return -jnp.sum(point["weights"] ** 2) - point["offset"] ** 2

    example = {"weights": jnp.zeros((2, 3)), "offset": 0.0}
    target = qg.Target.from_logdensity(log_density, example=example)
    result = qg.fit(target, qg.MeanField.init(7, key=key), steps=2, key=key)
    sample = result.sample(key, 11)
    assert {name: x.shape for name, x in sample.items()} == {"weights": (11, 2, 3), "offset": (11,)}
    assert result.sample(key)["offset"].shape == (1000,)


@pytest.mark.parametrize(("show", "quiet"), [(None, True), (False, True), (True, False)])
def test_progress_is_shown_on_request_and_silent_without_a_terminal(target, key, capsys, show, quiet):
    q = qg.MeanField.init(2, key=key)
    qg.fit(target, q, steps=4, progress=show, key=key)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert (shown.err == "") == quiet
