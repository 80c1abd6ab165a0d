"""A target made anew is fitted to the data as they are then, whatever way they came into the model.

All models are y_i ~ N(z, 1) with z ~ N(0, 10^2), so the posterior mean is sum(y) / (n + 0.01).
"""

import dataclasses
import functools
import sys
import types
from typing import Any

import elsewhere
import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

import quietgrad as qg

ROWS = 8
FIRST, SECOND = 8.0, 0.37
PRIOR = 0.01

GLOBAL, REBOUND, NUMBER, INTEGERS = np.zeros(ROWS), np.zeros(ROWS), 0.0, np.zeros(ROWS, int)
SETTINGS = {"rows": [np.zeros(ROWS // 2), (np.zeros(ROWS // 2),)]}


def density(data, z):
    return -0.5 * jnp.sum((data - z[0]) ** 2) - 0.5 * PRIOR * z[0] ** 2


def reads_a_global(z):
    return density(GLOBAL, z)


def reads_a_rebound_global(z):
    return density(REBOUND, z)


def reads_a_number(z):
    return density(jnp.full(ROWS, NUMBER), z)


def reads_integers(z):
    return density(INTEGERS / 100, z)


def reads_a_nested_global(z):
    a, (b,) = SETTINGS["rows"]
    return density(jnp.concatenate([a, b]), z)


def reads_another_module(z):
    return -0.5 * elsewhere.misfit(z) - 0.5 * PRIOR * z[0] ** 2


@jax.jit
def jitted(z):
    return density(GLOBAL, z)


@jax.jit
def jitted_helper():
    return jnp.asarray(GLOBAL)


def calls_a_jitted_helper(z):
    return density(jitted_helper(), z)


@jax.jit
def jitted_with_a_number(z):
    return density(jnp.full(ROWS, NUMBER), z)


def body_with_a_number(data, i):
    return data.at[i].set(NUMBER), None


def scans_with_a_number(z):
    data, _ = jax.lax.scan(body_with_a_number, 0 * z[0] + jnp.zeros(ROWS), jnp.arange(ROWS))
    return density(data, z)


@jax.jit
def jitted_with_a_rebound_global(z):
    return density(REBOUND, z)


def body(total, i):
    return total - 0.5 * (jnp.asarray(GLOBAL)[i] - total * 0) ** 2, jnp.asarray(GLOBAL)[i]


def scans(z):
    data = jax.lax.scan(body, 0.0 * z[0], jnp.arange(ROWS))[1]
    return density(data, z)


def turn(i, data):
    return data.at[i].set(jnp.asarray(GLOBAL)[i])


def loops(z):
    return density(jax.lax.fori_loop(0, ROWS, turn, 0 * z[0] + jnp.zeros(ROWS)), z)


@jax.custom_jvp
def with_a_rule(z):
    return density(GLOBAL, z)


@with_a_rule.defjvp
def rule(primals, tangents):
    (z,), (t,) = primals, tangents
    return with_a_rule(z), (jnp.sum(GLOBAL - z[0]) - PRIOR * z[0]) * t[0]


def calls_a_function_with_a_rule(z):
    return with_a_rule(z)


class Holder:
    shared: Any = np.zeros(ROWS)

    def __init__(self):
        self.data = np.zeros(ROWS)

    def method(self, z):
        return density(self.data, z)

    def of_the_class(self, z):
        return density(Holder.shared, z)

    def __call__(self, z):
        return density(self.data, z)


@dataclasses.dataclass
class Options:
    data: Any
    number: float = 0.0


class Module(eqx.Module):
    data: Any

    def __call__(self, z):
        return density(self.data, z)


def closure(data):
    def log_density(z):
        return density(data, z)

    return log_density


def closure_over_an_object(holder):
    return lambda z: density(holder.data, z)


def with_default(data):
    def log_density(z, data=data):
        return density(data, z)

    return log_density


def with_named_default(data):
    def log_density(z, *, data=data):
        return density(data, z)

    return log_density


def in_place(array, scale=1.0):
    def change(value):
        array[...] = value * scale

    return change


def set_global(name):
    def change(value):
        globals()[name] = np.full(ROWS, value) if name == "REBOUND" else value

    return change


def of_array(make):
    """A model of one array that is changed in place; one function all along, or made anew."""
    array = np.zeros(ROWS)
    return functools.partial(make, array), in_place(array)


def nested(value):
    first, (second,) = SETTINGS["rows"]
    first[:], second[:] = value, value


def of_a_method():
    holder = Holder()
    return lambda: holder.method, in_place(holder.data)


def of_an_attribute():
    holder = Holder()

    def change(value):
        holder.data = np.full(ROWS, value)

    return lambda: closure_over_an_object(holder), change


def of_a_callable():
    holder = Holder()
    return lambda: holder, in_place(holder.data)


def of_a_class():
    return lambda: Holder().of_the_class, in_place(Holder.shared)


def of_a_replaced_class_attribute():
    def change(value):
        Holder.shared = np.full(ROWS, value)

    return lambda: Holder().of_the_class, change


def of_a_dataclass():
    options = Options(np.zeros(ROWS))

    def change(value):
        options.number = value

    return lambda: lambda z: density(options.data + options.number, z), change


def of_a_view():
    base = np.zeros((ROWS, 2))
    view = base[:, 1]
    return lambda: closure(view), in_place(base)


def of_a_list():
    held = [jnp.zeros(ROWS)]

    def change(value):
        held[0] = jnp.full(ROWS, value)

    return lambda: lambda z: density(held[0], z), change


def of_an_array_without_axes():
    value = np.array(0.0)
    return lambda: lambda z: density(value * jnp.ones(ROWS), z), in_place(value)


def of_a_namespace():
    space = types.SimpleNamespace(inner={"data": [np.zeros(ROWS)]})
    return lambda: lambda z: density(space.inner["data"][0], z), in_place(space.inner["data"][0])


def of_numbers_that_are_needed():
    """An array whose values decide in Python, as no array of jax's could."""
    array = np.zeros(ROWS)
    return lambda: lambda z: density(jnp.asarray([float(x) for x in array]), z), in_place(array)


def of_a_property():
    class Lazy:
        def __init__(self):
            self._data = np.zeros(ROWS)

        @property
        def data(self):
            return self._data

    lazy = Lazy()
    return lambda: lambda z: density(lazy.data, z), in_place(lazy._data)


WAYS = {
    "closure": lambda: of_array(closure),
    "one closure": lambda: (lambda pair: (lambda f: (lambda: f, pair[1]))(pair[0]()))(of_array(closure)),
    "default": lambda: of_array(with_default),
    "named default": lambda: of_array(with_named_default),
    "partial": lambda: of_array(lambda array: functools.partial(density, array)),
    "eqx module": lambda: of_array(Module),
    "method of an eqx module": lambda: of_array(lambda array: Module(array).__call__),
    "global": lambda: (lambda: reads_a_global, in_place(GLOBAL)),
    "lambda of a global": lambda: (lambda: lambda z: reads_a_global(z), in_place(GLOBAL)),
    "rebound global": lambda: (lambda: reads_a_rebound_global, set_global("REBOUND")),
    "global number": lambda: (lambda: reads_a_number, set_global("NUMBER")),
    "global integers": lambda: (lambda: reads_integers, in_place(INTEGERS, 100)),
    "nested global": lambda: (lambda: reads_a_nested_global, nested),
    "another module": lambda: (lambda: reads_another_module, in_place(elsewhere.DATA)),
    "bound method": of_a_method,
    "attribute": of_an_attribute,
    "callable object": of_a_callable,
    "class attribute": of_a_class,
    "replaced class attribute": of_a_replaced_class_attribute,
    "dataclass": of_a_dataclass,
    "view": of_a_view,
    "list of jax arrays": of_a_list,
    "array without axes": of_an_array_without_axes,
    "namespace": of_a_namespace,
    "property": of_a_property,
    "numbers needed": of_numbers_that_are_needed,
    # jax itself has traced these before, and keeps what it read.
    "jitted": lambda: (lambda: jitted, in_place(GLOBAL)),
    "jitted helper": lambda: (lambda: calls_a_jitted_helper, in_place(GLOBAL)),
    "jitted with a number": lambda: (lambda: jitted_with_a_number, set_global("NUMBER")),
    "jitted, rebound": lambda: (lambda: jitted_with_a_rebound_global, set_global("REBOUND")),
    "scan with a number": lambda: (lambda: scans_with_a_number, set_global("NUMBER")),
    "body of a scan": lambda: (lambda: scans, in_place(GLOBAL)),
    "body of a loop": lambda: (lambda: loops, in_place(GLOBAL)),
    "custom rule": lambda: (lambda: calls_a_function_with_a_rule, in_place(GLOBAL)),
}


# Numbers, which are literals of a program, what a rule of differentiation reads, and arrays that
# functions jitted by the user capture: jax keeps these inside the function's own program.
PARTS_OF_THE_PROGRAM = (
    "jitted",
    "jitted helper",
    "jitted, rebound",
    "global number",
    "jitted with a number",
    "scan with a number",
    "dataclass",
    "numbers needed",
    "array without axes",
    "custom rule",
)


def exact(value):
    return ROWS * value / (ROWS + PRIOR)


def mean_of(target, key):
    return float(qg.fit(target, "mean-field", key=key).q.loc[0])


@pytest.fixture(params=["double", "default"])
def precision(request, monkeypatch):
    """Without double precision jax converts NumPy's arrays, and keeps the conversions.

    It keeps them when the precision changes, too, so each test has arrays of its own.
    """
    here = sys.modules[__name__]
    holders = (
        (here, "GLOBAL"),
        (here, "REBOUND"),
        (here, "INTEGERS"),
        (elsewhere, "DATA"),
        (Holder, "shared"),
    )
    for holder, name in holders:
        monkeypatch.setattr(holder, name, np.zeros(ROWS, int if name == "INTEGERS" else float))
    monkeypatch.setitem(SETTINGS, "rows", [np.zeros(ROWS // 2), (np.zeros(ROWS // 2),)])
    with jax.enable_x64(request.param == "double"):
        yield


@pytest.mark.turns(3)
@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize("way", WAYS)
def test_a_target_made_anew_has_the_data_of_now(way, key):
    make, change = WAYS[way]()
    change(FIRST)
    function = make()
    # The user looks at the model, compiled: jax has seen the data.
    jax.jit(lambda z: function(z))(jnp.zeros(1))
    first = mean_of(qg.Target.from_logdensity(function, dim=1), key)
    change(SECOND)
    target = qg.Target.from_logdensity(make(), dim=1)
    assert first == pytest.approx(exact(FIRST), abs=1e-4)
    assert mean_of(target, key) == pytest.approx(exact(SECOND), abs=1e-4)
    # What has been read stays as it was, compiled or not.
    before = target.log_density(jnp.zeros(1))
    change(FIRST)
    assert target.log_density(jnp.zeros(1)) == before
    assert mean_of(target, key) == pytest.approx(exact(SECOND), abs=1e-4)


@pytest.mark.turns(3)
@pytest.mark.usefixtures("precision")
@pytest.mark.parametrize("way", sorted({*WAYS} - {*PARTS_OF_THE_PROGRAM}))
def test_new_numbers_in_arrays_compile_nothing(way, key):
    make, change = WAYS[way]()
    change(FIRST)
    qg.fit(qg.Target.from_logdensity(make(), dim=1), "mean-field", key=key)
    change(SECOND)
    again = qg.fit(qg.Target.from_logdensity(make(), dim=1), "mean-field", key=key)
    assert again.programs == 0


def log_prior(z):
    return -0.5 * PRIOR * z[0] ** 2


def shifted(offset):
    def log_likelihood(z, y):
        return -0.5 * (y + jnp.sum(offset) / ROWS - z[0]) ** 2

    return log_likelihood


BATCHES = qg.Sgd("quiet", optax.adam(optax.cosine_decay_schedule(0.3, 500)), steps=500)


@pytest.mark.turns(2)
@pytest.mark.usefixtures("precision")
def test_minibatches_have_the_captured_data_of_their_target(key):
    """Rows come in other numbers than the target has: the function is traced again, and may not mix."""
    offset, data = np.zeros(ROWS), np.linspace(-1, 1, ROWS)
    likelihood = shifted(offset)

    def made(value):
        offset[:] = value
        return qg.Target(log_prior, likelihood, data, dim=1)

    def fitted(target):
        return qg.fit(target, "mean-field", method=BATCHES, batch_size=2, key=key)

    first, second = made(FIRST), made(SECOND)
    offset[:] = -100.0
    runs = fitted(first), fitted(second)
    for run, value in zip(runs, (FIRST, SECOND), strict=True):
        # Steps of cosine decay end within a few hundredths; the other data are at a distance of 7.
        assert float(run.q.loc[0]) == pytest.approx(exact(value), abs=0.2)
    assert runs[1].programs == 0


def test_a_function_that_changed_is_refused_where_it_has_to_be_read_again(key):
    settings = {"offset": 1.0}

    def log_likelihood(z, y):
        return -0.5 * (y + settings["offset"] - z[0]) ** 2

    target = qg.Target(log_prior, log_likelihood, np.zeros(ROWS), dim=1)
    settings["offset"] = 2.0
    assert mean_of(target, key) == pytest.approx(exact(1.0), abs=1e-4)
    with pytest.raises(ValueError, match="make the target again"):
        qg.fit(target, "mean-field", method=BATCHES, batch_size=2, key=key)


def test_constants_that_depend_on_the_number_of_rows_are_not_shared(key):
    """A slice by NumPy: an array of another length for each number of rows."""
    offset = np.zeros(ROWS)

    def log_likelihood(z, y):
        return -0.5 * (y + offset[: len(y)] - z[0]) ** 2

    for value in (FIRST, SECOND):
        offset[:] = value
        target = qg.Target(log_prior, log_likelihood, np.zeros(ROWS), dim=1)
        run = qg.fit(target, "mean-field", method=BATCHES, batch_size=2, key=key)
        assert float(run.q.loc[0]) == pytest.approx(exact(value), abs=0.2)


@pytest.mark.usefixtures("precision")
def test_data_are_copied(key):
    """Also by the arrays that a result is diagnosed with."""
    for rows in (ROWS, 1000, 2**14):
        for dtype in (np.float32, np.float64):
            data = np.full(rows, FIRST, dtype)
            target = qg.Target(log_prior, lambda z, y: -0.5 * (y - z[0]) ** 2, data, dim=1)
            data[:] = SECOND
            np.testing.assert_array_equal(target.data, FIRST)


def test_a_target_without_a_dim_is_read_by_the_fit(key):
    array = np.zeros(ROWS)
    target = qg.Target(closure(array))
    q = qg.MeanField.init(1, key=key)
    for value in (FIRST, SECOND):
        array[:] = value
        assert float(qg.fit(target, q, key=key).q.loc[0]) == pytest.approx(exact(value), abs=1e-4)


def test_a_result_is_diagnosed_with_the_data_that_were_fitted(key):
    array = np.zeros(ROWS)
    array[:] = FIRST
    result = qg.fit(qg.Target.from_logdensity(closure(array), dim=1), key=key)
    before = result.target.log_density(jnp.zeros(1))
    array[:] = -100.0
    assert result.target.log_density(jnp.zeros(1)) == before
    # At other data q would have no overlap with the posterior.
    assert result.diagnose().khat < 0.5


def test_hyperparameters_are_fitted_to_the_data_of_now(key):
    array = np.zeros(ROWS)

    def log_density(z, h):
        return density(array, z) - 0.5 * (h["shift"] - z[0]) ** 2

    for value in (FIRST, SECOND):
        array[:] = value
        start = {"shift": jnp.array(0.0)}
        result = qg.fit(qg.Target(log_density, dim=1), hyperparameters=start, key=key)
        assert float(result.q.loc[0]) == pytest.approx(exact(value), abs=1e-2)
        assert result.hyperparameters["shift"] == pytest.approx(exact(value), abs=1e-2)
        before = result.target.log_density(jnp.zeros(1))
        array[:] = -100.0
        assert result.target.log_density(jnp.zeros(1)) == before


def test_a_schedule_has_the_rate_of_now(key):
    """An optimiser is part of the compiled step, and its settings may change, too."""
    settings = Options(None)
    optimizer = optax.sgd(lambda step: settings.number)
    target, q = (
        qg.Target.from_logdensity(lambda z: -0.5 * z @ z, dim=1),
        qg.MeanField(jnp.ones(1), jnp.zeros(1)),
    )
    moved = []
    for rate in (1e-3, 1e-2):
        settings.number = rate
        result = qg.fit(target, q, method=qg.Sgd("nocv", optimizer, steps=1), key=key)
        moved.append(float(result.q.loc[0]) - 1.0)
    assert moved[1] == pytest.approx(10 * moved[0], rel=1e-6)


def test_fits_in_turns_loops_and_races_have_the_data_of_now(key):
    array = np.zeros(ROWS)

    def made(value):
        array[:] = value
        return qg.Target.from_logdensity(closure(array), dim=1)

    many = qg.fit_many([made(FIRST), made(SECOND)], key=key)
    for result, value in zip(many, (FIRST, SECOND), strict=True):
        assert result is not None
        assert float(result.q.loc[0]) == pytest.approx(exact(value), abs=1e-4)
    for value in (FIRST, SECOND):
        steps = qg.loop(made(value), optimizer=optax.adam(optax.cosine_decay_schedule(0.3, 600)))
        state, _ = jax.jit(lambda k, s=steps: jax.lax.scan(s.step, s.init(k), jr.split(k, 600)))(key)
        assert float(steps.family(state).loc[0]) == pytest.approx(exact(value), abs=0.05)


def test_a_checkpoint_of_other_data_is_refused(tmp_path, key):
    array = np.zeros(ROWS)

    def run(value):
        array[:] = value
        target = qg.Target.from_logdensity(closure(array), dim=1)
        return qg.fit(target, "mean-field", checkpoint=tmp_path, key=key)

    first = run(FIRST)
    assert run(FIRST).elbo == first.elbo
    with pytest.raises(ValueError, match="target"):
        run(SECOND)
