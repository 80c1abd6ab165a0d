"""Closures made anew with other data share their programs, and mean what they meant."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad.targets.lifted import Lifted, lift


def regression(x, y, scale=2.0):
    def residual(z):
        return (y - x @ z) / scale

    def log_density(z, *, weight=0.5):
        return -weight * jnp.sum(residual(z) ** 2) - 0.5 * jnp.sum(z**2)

    return log_density


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(20, 3)), rng.normal(size=20)) for _ in range(2)]


def test_a_lifted_function_is_the_function(data):
    for x, y in data:
        plain, lifted = regression(x, y), lift(regression(x, y))
        assert isinstance(lifted, Lifted)
        assert len(lifted.arrays) == 2
        z = jnp.array([0.1, -2.0, 0.5])
        assert lifted(z) == plain(z)
        np.testing.assert_allclose(jax.grad(lifted)(z), jax.grad(plain)(z), rtol=1e-12)


def test_other_data_need_no_new_program_and_change_the_answer(data):
    results = []
    for x, y in data:
        target = qg.Target.from_logdensity(regression(x, y), dim=3)
        results.append(qg.fit(target, "full-rank", key=jr.key(0)))
    assert results[0].programs > 0
    assert results[1].programs == 0
    for (x, y), result in zip(data, results, strict=True):
        # A Gaussian posterior: (x'x/4 + I)^-1 x'y/4.
        exact = np.linalg.solve(x.T @ x / 4 + np.eye(3), x.T @ y / 4)
        np.testing.assert_allclose(result.q.loc, exact, atol=1e-6)


def template(function):
    lifted = lift(function)
    assert isinstance(lifted, Lifted)
    return lifted.template


def test_other_settings_are_another_function(data):
    x, y = data[0]
    others = [regression(x, y, 1.0), regression(x, y, 3.0), regression(*data[1], 1.0)]
    narrow, wide, anew = (template(function) for function in others)
    assert narrow != wide
    assert narrow == anew


def test_arrays_that_decide_about_shapes_stay_in_the_function():
    keep = np.array([True, False, True])
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z[keep] ** 2) - z[1] ** 2, dim=3)
    assert target.log_density(jnp.ones(3)) == -2.0


def test_a_function_that_computes_with_numpy_is_left_as_it_is():
    x = np.arange(3.0)
    target = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum((z - float(x[1])) ** 2), dim=3)
    assert not isinstance(target.log_prior, Lifted)
    assert target.log_density(jnp.ones(3)) == 0.0


def recursive(x):
    def power(z, n):
        return x[0] * z if n == 0 else z * power(z, n - 1)

    return lambda z: -jnp.sum(power(z, 1) ** 2)


@pytest.mark.parametrize(
    "function", [jnp.sum, functools.partial(jnp.sum, axis=0), recursive(np.ones(1))]
)
def test_what_cannot_be_taken_apart_stays_whole(function):
    assert lift(function) is function


SCALE, PLACE, SETTINGS = 1.0, np.zeros(2), {"power": 2}


class Options:
    power = 2


OPTIONS = Options()


def _helper(z):
    return SCALE * jnp.sum((z - PLACE) ** SETTINGS["power"])


def by_name(z):
    return -_helper(z)


def of_an_object(z):
    return -jnp.sum(z**OPTIONS.power)


@pytest.mark.parametrize("function", [by_name, lambda z: -_helper(z)], ids=["named", "lambda"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("SCALE", 3.0), ("PLACE", np.ones(2)), ("SETTINGS", {"power": 4}), ("_helper", jnp.sum)],
)
def test_a_name_of_the_module_that_changed_is_another_function(function, name, value, monkeypatch):
    """As in a notebook whose data changed: an old program would give the old answer, silently."""
    value_of = eqx.filter_jit(lambda f, z: f(z))
    z = jnp.full(2, 0.5)
    first = lift(function)
    assert value_of(first, z) == function(z)
    assert lift(function) == first
    monkeypatch.setitem(globals(), name, value)
    assert lift(function) != first
    assert value_of(lift(function), z) == function(z)


def test_objects_are_looked_at_each_time():
    assert lift(of_an_object) != lift(of_an_object)
    assert lift(of_an_object)(jnp.ones(3)) == -3.0
