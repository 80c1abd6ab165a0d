"""One model, many data sets: nothing is compiled after the first, and one that fails stays alone."""

import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import quietgrad as qg

METHODS = ["auto", qg.Sgd(steps=40, evaluate_every=20)]


def log_prior(z):
    return -0.5 * z @ z


def log_likelihood(z, rows):
    return -0.5 * (rows["y"] - rows["x"] @ z) ** 2


def regression(seed, rows=20):
    x, y = np.random.default_rng(seed).standard_normal((2, rows, 2))
    return {"x": x, "y": y[:, 0]}


def exact_mean(data):
    return np.linalg.solve(np.eye(2) + data["x"].T @ data["x"], data["x"].T @ data["y"])


def stacked(count):
    return jax.tree.map(lambda *x: np.stack(x), *(regression(seed) for seed in range(count)))


def done(many):
    """The results, none of which is missing."""
    return [result for result in many if result is not None]


@pytest.mark.turns(2)
@pytest.mark.parametrize("method", METHODS, ids=["auto", "sgd"])
def test_nothing_is_compiled_after_the_first(method, key):
    targets = [qg.Target(log_prior, log_likelihood, regression(seed), dim=2) for seed in range(4)]
    many = qg.fit_many(targets, method=method, key=key)
    assert [result.programs for result in done(many)[1:]] == [0, 0, 0]
    again = qg.fit_many(targets[0], data=stacked(4), method=method, key=key)
    assert list(again.table()["programs"]) == [0, 0, 0, 0]
    np.testing.assert_array_equal(again.table()["elbo"], many.table()["elbo"])


def test_closures_made_anew_share_their_programs(key):
    def target(seed):
        data = regression(seed)
        x, y = jnp.asarray(data["x"]), jnp.asarray(data["y"])
        return qg.Target.from_logdensity(lambda z: -0.5 * (z @ z + jnp.sum((y - x @ z) ** 2)), dim=2)

    many = qg.fit_many([target(seed) for seed in range(3)], "full-rank", key=key)
    assert [result.programs for result in done(many)[1:]] == [0, 0]
    for seed, result in enumerate(done(many)):
        # A full-rank Gaussian is the posterior, and Newton steps are exact on it.
        np.testing.assert_allclose(result.q.mean(), exact_mean(regression(seed)), atol=1e-6)


def test_each_is_the_fit_of_its_own_data(key):
    template = qg.Target(log_prior, log_likelihood, regression(9, rows=7), dim=2)
    many = qg.fit_many(template, data=stacked(2), key=key)
    first = qg.fit(qg.Target(log_prior, log_likelihood, regression(0), dim=2), key=key)
    assert done(many)[0].elbo == first.elbo
    assert done(many)[0].target.size == 20
    np.testing.assert_array_equal(done(many)[1].target.data["y"], regression(1)["y"])


def test_equal_data_are_fitted_with_keys_of_their_own(key):
    data = jax.tree.map(lambda x: np.stack([x, x]), regression(0))
    template = qg.Target(log_prior, log_likelihood, regression(9), dim=2)
    first, second = done(qg.fit_many(template, data=data, method=METHODS[1], key=key))
    assert not np.any(np.asarray(first.q.loc) == np.asarray(second.q.loc))


def test_one_that_fails_keeps_its_place(key):
    data = stacked(3)
    data["y"][1, 0] = np.nan
    template = qg.Target(log_prior, log_likelihood, regression(9), dim=2)
    many = qg.fit_many(template, data=data, method=METHODS[1], key=key)
    assert [result is None for result in many] == [False, True, False]
    assert "NaN" in many.errors[1]
    assert list(many.table()["status"]) == ["budget", "error", "budget"]
    printed = str(many).splitlines()
    assert len(printed) == 4
    assert "remove or impute" in printed[2]


def test_an_interruption_stops_them_all(key):
    def stop(moment):
        os.kill(os.getpid(), signal.SIGINT)

    template = qg.Target(log_prior, log_likelihood, regression(9), dim=2)
    many = qg.fit_many(template, data=stacked(3), method=METHODS[1], callback=stop, key=key)
    assert done(many)[0].status is qg.Status.INTERRUPTED
    assert list(many.errors) == [1, 2]
    assert "stopped" in many.errors[2]


def test_the_time_limit_is_for_all(key):
    template = qg.Target(log_prior, log_likelihood, regression(9), dim=2)
    many = qg.fit_many(template, data=stacked(2), method=METHODS[1], seconds=1e-9, key=key)
    assert all("time limit" in hint for hint in many.table()["hint"])


@pytest.mark.parametrize(
    ("targets", "data", "message"),
    [
        ([], None, "an empty list"),
        (qg.Target(log_prior, dim=2), None, "one target was given without data"),
        (qg.Target(log_prior, dim=2), np.zeros(()), "non-empty leading axis"),
        ([qg.Target(log_prior, dim=2)], np.zeros(3), "a list of targets brings its own"),
    ],
)
def test_misuse(targets, data, message, key):
    with pytest.raises((TypeError, ValueError), match=message):
        qg.fit_many(targets, data=data, key=key)


def test_what_fails_everywhere_is_an_error(key):
    template = qg.Target(log_prior, log_likelihood, regression(9), dim=2)
    with pytest.raises(ValueError, match="unknown family 'nonsense'"):
        qg.fit_many(template, "nonsense", data=stacked(2), key=key)


def test_data_of_another_form_is_refused():
    template = qg.Target(log_prior, log_likelihood, regression(9), dim=2)
    with pytest.raises(ValueError, match="like that of the target"):
        template.with_data({"x": np.zeros((3, 1)), "y": np.zeros(3)})
    with pytest.raises(ValueError, match="no data that others"):
        qg.Target(log_prior, dim=2).with_data(np.zeros(3))
