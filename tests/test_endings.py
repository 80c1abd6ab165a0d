"""Every ending is true: targets that cannot be fitted, with every method, and Ctrl-C at any moment."""

import os
import signal
import threading
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import quietgrad as qg
from quietgrad.status import Status

of = qg.Target.from_logdensity
ROWS = np.random.default_rng(0).normal(size=(30, 2))


def row_17(z, x):
    return jnp.where(jnp.arange(30) == 17, jnp.nan, -((x @ z) ** 2))


def recursion(z):
    """A time series whose density overflows outside of its stable region."""

    def move(last, _):
        return z[0] * last + 0.1 * z[1] * last**3, last

    _, series = jax.lax.scan(move, 1.0, None, length=200)
    return -50 * jnp.sum((series - 0.5 ** jnp.arange(200)) ** 2) - 0.5 * jnp.sum(z**2)


def named(point):
    return -0.5 * point["slope"] ** 2 + 0 * jnp.sum(point["level"])


# Target, the statuses that are true, and words that the sentence must have.
BROKEN = {
    "NaN everywhere": (of(lambda z: jnp.nan * z[0], dim=3), "non-finite", "log density is nan"),
    "NaN in the likelihood of a row": (
        qg.Target(lambda z: -0.5 * z @ z, row_17, ROWS, dim=2),
        "non-finite",
        "log likelihood of row 17",
    ),
    "NaN in the prior": (
        qg.Target(lambda z: jnp.log(-1 - z @ z), lambda z, x: -((x @ z) ** 2), ROWS, dim=2),
        "non-finite",
        "log prior",
    ),
    "zero density in half of the space": (
        of(lambda z: jnp.where(z[0] > 0, -z[0], -jnp.inf) - 0.5 * z[1] ** 2, dim=2),
        "non-finite budget",
        "",
    ),
    "flat": (of(lambda z: 0 * jnp.sum(z), dim=3), "unbounded", "does not fall off along coordinate"),
    "rising for ever": (of(jnp.sum, dim=3), "unbounded", "improper"),
    "flat in one direction": (of(lambda z: -0.5 * z[0] ** 2, dim=2), "unbounded", "coordinate 1"),
    "flat in a coordinate with a name": (
        of(named, example={"level": jnp.zeros(2), "slope": 0.0}),
        "unbounded",
        "coordinate level[",
    ),
    "a spike": (
        of(lambda z: -2 * jnp.log(jnp.abs(z[0]) + 1e-300) - 0.5 * z[1] ** 2, dim=2),
        "collapsed",
        "spike along coordinate 0",
    ),
}
# Targets that can be fitted, with the best mean-field and full-rank ELBO, which are equal.
FINE = {
    "a unit Gaussian": (of(lambda z: -0.5 * z @ z, dim=2), np.log(2 * np.pi)),
    "a Gaussian far away": (of(lambda z: -0.5 * jnp.sum((z - 1e4) ** 2), dim=2), np.log(2 * np.pi)),
    "a tiny Gaussian": (
        of(lambda z: -0.5 * jnp.sum((z / 1e-6) ** 2), dim=2),
        np.log(2 * np.pi) + 2 * np.log(1e-6),
    ),
    "a huge Gaussian": (
        of(lambda z: -0.5 * jnp.sum((z / 1e6) ** 2), dim=2),
        np.log(2 * np.pi) + 2 * np.log(1e6),
    ),
}
METHODS = {"auto": qg.Auto(), "saa": qg.Saa(), "sgd": qg.Sgd(optimizer=optax.adam(0.05), steps=4000)}
FAMILIES = ("mean-field", "full-rank")


def in_turn(targets):
    """Each target with each method; families take turns, so that each meets every target and method.

    The other half is slow.
    """
    return pytest.mark.parametrize(
        ("name", "method", "family"),
        [
            pytest.param(name, method, family, marks=() if (i + j + k) % 2 == 0 else pytest.mark.slow)
            for i, name in enumerate(targets)
            for j, method in enumerate(METHODS)
            for k, family in enumerate(FAMILIES)
        ],
    )


@pytest.mark.turns(3)
@in_turn(BROKEN)
def test_what_cannot_be_fitted_is_said_and_named(name, method, family):
    target, status, words = BROKEN[name]
    result = qg.fit(target, family, method=METHODS[method], key=jr.key(0))
    assert result.status in status.split(), result.hint
    assert words in result.hint
    assert result.steps <= 10_000


@pytest.mark.turns(2)
@in_turn(FINE)
def test_converged_is_said_only_where_the_known_answer_agrees(name, method, family):
    target, best = FINE[name]
    result = qg.fit(target, family, method=METHODS[method], key=jr.key(0))
    if method != "sgd":
        assert result.status is Status.CONVERGED, result.hint
    arrived = result.elbo > best - 0.5 - 5 * result.elbo_error
    assert arrived or result.status is Status.BUDGET, (result.elbo, result.status)


@pytest.mark.turns(2)
@pytest.mark.parametrize("method", ["auto", "saa"])
def test_a_density_that_overflows_far_out_is_fitted(method):
    """By quadrature on a grid around its mode, log of the integral is -1.19: no ELBO is above it."""
    target = of(recursion, dim=2)
    axes = np.linspace(-1.5, 1.5, 241), np.linspace(-6, 6, 241)
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    log_density = np.asarray(jax.vmap(target.log_density)(jnp.asarray(grid)))
    log_density = np.where(np.isfinite(log_density), log_density, -np.inf)
    cell = np.log(axes[0][1] - axes[0][0]) + np.log(axes[1][1] - axes[1][0])
    evidence = float(jax.nn.logsumexp(log_density)) + cell
    result = qg.fit(target, "full-rank", method=METHODS[method], key=jr.key(0))
    assert result.status is Status.CONVERGED
    assert evidence - 1.0 < result.elbo < evidence + 5 * result.elbo_error


def test_a_cap_on_iterations_is_not_convergence():
    target = of(lambda z: -0.5 * jnp.sum((z - 100.0) ** 2 / jnp.arange(1, 21)), dim=20)
    method = qg.Saa(most_iterations=2, draws=8, most_draws=8, polish_steps=0)
    result = qg.fit(target, method=method, key=jr.key(0))
    assert result.status is Status.BUDGET
    assert "iterations were used up" in result.hint


def test_a_blow_up_returns_the_last_finite_answer():
    """Plain steps of rate one walk over the edge of a density whose gradient is NaN beyond it."""
    target = of(lambda z: jnp.sum(z) + 0 * jnp.sqrt(5.5 - z[0]), dim=1)
    q = qg.MeanField(jnp.zeros(1), jnp.full(1, -40.0))
    method = qg.Sgd("nocv", optax.sgd(1.0), steps=100, evaluate_every=1)
    result = qg.fit(target, q, method=method, key=jr.key(0))
    assert result.status.failed
    assert result.steps <= 6
    assert np.all(np.isfinite(result.q.loc))


def test_a_run_that_still_rises_ends_with_its_budget():
    target = of(lambda z: -0.5 * jnp.sum((z - 100) ** 2), dim=1)
    result = qg.fit(target, method=qg.Sgd(steps=50), key=jr.key(0))
    assert result.status is Status.BUDGET
    assert "more steps" in result.hint


def test_a_time_limit_ends_every_method_with_its_best_answer():
    target = of(lambda z: -jnp.sum(jnp.cosh(z - 3)), dim=30)
    for method in (*METHODS.values(), qg.Sgd(steps=10**7)):
        result = qg.fit(target, method=method, seconds=1e-3, key=jr.key(0))
        assert result.status is Status.BUDGET, method
        assert "time limit" in result.hint
        assert np.isfinite(result.elbo)


def regression():
    """For methods that go on until they are interrupted."""
    x = np.random.default_rng(1).normal(size=(500, 12))
    y = (x[:, 0] + np.random.default_rng(2).logistic(size=500) > 0).astype(float)

    def log_likelihood(z, data):
        return data[1] * (data[0] @ z) - jnp.logaddexp(data[0] @ z, 0.0)

    return qg.Target(lambda z: -0.5 * z @ z, log_likelihood, (x, y), dim=12)


@pytest.fixture(scope="module")
def slow():
    """The target and methods that do not end by themselves, with most of their programs compiled."""
    target = regression()
    methods = {
        "auto": qg.Auto(gain=-1.0, gain_each=-1.0, steps=10**7),
        "saa": qg.Saa(polish_steps=10**7),
        "sgd": qg.Sgd(steps=10**7),
    }
    for method in methods.values():
        qg.fit(target, "full-rank", method=method, seconds=1.0, key=jr.key(0))
    return target, methods


def send_ctrl_c(moment):
    """Send it so many seconds after the fit has begun."""
    while signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        time.sleep(1e-4)
    time.sleep(moment)
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.turns(3)
@pytest.mark.parametrize("count", [3, pytest.param(9, marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ["auto", "saa", "sgd"])
def test_ctrl_c_at_any_moment_returns_the_best_answer_so_far(slow, method, count):
    target, methods = slow
    moments = np.random.default_rng([ord(c) for c in method]).uniform(0.0, 0.5, count)
    moments = [0.0, *moments]  # while the call still checks what it was given
    for moment in moments:
        sender = threading.Thread(target=send_ctrl_c, args=(moment,))
        sender.start()
        result = qg.fit(target, "full-rank", method=methods[method], seconds=60.0, key=jr.key(0))
        sender.join()
        assert result.status is Status.INTERRUPTED
        assert "stopped by the user" in result.hint
        assert np.isfinite(result.elbo)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_callback_that_interrupts_ends_the_fit():
    def callback(moment):
        if moment.step >= 20:
            raise KeyboardInterrupt

    method = qg.Sgd(steps=100, evaluate_every=10)
    result = qg.fit(FINE["a unit Gaussian"][0], method=method, callback=callback, key=jr.key(0))
    assert result.status is Status.INTERRUPTED
    assert list(result.history["step"]) == [0, 10]


@pytest.mark.parametrize("family", ["mean-field", "auto"])
def test_numbers_that_end_in_a_far_tail_end_no_fit(family):
    """As those of a simplex do whose concentrations are small. The verdict says it too."""
    edge = 3.3  # beyond it is a share of 1e-3 of a unit Gaussian

    def density(z):
        return jnp.where(jnp.abs(z[0]) < edge, -0.5 * jnp.sum(z**2), jnp.nan)

    result = qg.fit(of(density, dim=2), family, key=jr.key(0))
    assert result.status == "converged", result.hint
    assert "of q's draws the log density is not a number" in result.hint
    assert abs(result.elbo - np.log(2 * np.pi)) < 5 * result.elbo_error + 1e-3
    assert "not finite at" in str(result.diagnose())
