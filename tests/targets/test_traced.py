"""Traced functions mean what they meant, and are one if their programs are."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import quietgrad as qg
from quietgrad._util.tracing import traced

Z = np.array([0.1, -2.0, 0.5])
POINT = jax.ShapeDtypeStruct((3,), np.float64)


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


def test_other_data_need_no_new_program_and_change_the_answer(data):
    results = []
    for x, y in data:
        target = qg.Target.from_logdensity(regression(x, y, 1.9), dim=3)
        results.append(qg.fit(target, "full-rank", key=jr.key(0)))
    assert results[0].programs > 0
    assert results[1].programs == 0
    for (x, y), result in zip(data, results, strict=True):
        # A Gaussian posterior: (x'x/s^2 + I)^-1 x'y/s^2.
        exact = np.linalg.solve(x.T @ x / 1.9**2 + np.eye(3), x.T @ y / 1.9**2)
        np.testing.assert_allclose(result.q.loc, exact, atol=1e-6)


@jax.custom_vjp
def squared(z):
    return jnp.sum(z**2)


squared.defvjp(lambda z: (squared(z), z), lambda z, g: (2 * g * z,))
TABLE, KEY, MASK = np.arange(6.0).reshape(2, 3), jr.key(3), np.array([True, False, True])


def recursive(n):
    def power(z, n):
        return TABLE[0] * z if n == 0 else z * power(z, n - 1)

    return lambda z: jnp.sum(power(z, n))


# What a function may do, each with arrays that it captures.
KINDS = {
    "plain": lambda z: -jnp.sum((TABLE @ z) ** 2),
    "custom rule": lambda z: squared(TABLE @ z) + jnp.logaddexp(z[0], z[1]),
    "scan": lambda z: jax.lax.scan(lambda c, row: (c + jnp.sin(row @ z), None), 0.0, TABLE)[0],
    "cond": lambda z: jax.lax.cond(z[0] > 0, lambda z: TABLE[0] @ z, lambda z: TABLE[1] @ z, z),
    "checkpoint": lambda z: jax.checkpoint(lambda z: jnp.sum(jnp.sin(TABLE @ z)))(z),
    "random numbers": lambda z: jr.normal(KEY, (3,)) @ z**2,
    "mask": lambda z: jnp.sum(z[MASK] ** 2),
    "concrete numbers": lambda z: float(TABLE[1, 1]) * jnp.sum(z**3),
    "vmap": lambda z: jnp.sum(jax.vmap(lambda row: jnp.tanh(row @ z))(TABLE)),
    "own gradient": lambda z: jnp.sum(jax.grad(lambda z: jnp.sum(jnp.cos(TABLE @ z)))(z) ** 2),
    "recursive": recursive(2),
    "linear algebra": lambda z: z @ jnp.linalg.solve(jnp.eye(3) + TABLE.T @ TABLE, z),
}


@pytest.mark.turns(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_traced_function_is_the_function(kind):
    plain, found = KINDS[kind], traced(KINDS[kind], POINT)
    z = jnp.stack([jnp.asarray(Z), 0.3 * jnp.asarray(Z)])

    @eqx.filter_jit
    def both(found, z):
        def facts(f):
            return jax.vmap(lambda z: (f(z), jax.grad(f)(z), jax.hessian(f)(z)))(z)

        hessian = kind != "custom rule"  # the rule above is for one derivative
        ours, theirs = facts(found) if hessian else (), facts(plain) if hessian else ()
        once = jax.vmap(jax.value_and_grad(found))(z), jax.vmap(jax.value_and_grad(plain))(z)
        return (ours, once[0]), (theirs, once[1])

    for ours, theirs in zip(*map(jax.tree.leaves, both(found, z)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found(Z), plain(jnp.asarray(Z)), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_traced_twice_is_one(kind):
    first, again = (traced(lambda z: KINDS[kind](z), POINT) for _ in range(2))
    assert first.program == again.program
    assert hash(first.program) == hash(again.program)


DIFFERENT = {
    "numbers": (lambda z: 2.0 * z[0], lambda z: 3.0 * z[0]),
    "signs of zero": (lambda z: z[0] + 0.0, lambda z: z[0] - 0.0),
    "types": (lambda z: z[0] * np.ones(2, np.float32), lambda z: z[0] * np.ones(2)),
    "shapes": (lambda z: jnp.sum(np.ones(2)) * z[0], lambda z: jnp.sum(np.ones(3)) * z[0]),
    "operations": (lambda z: jnp.sin(z[0]), lambda z: jnp.cos(z[0])),
    "order": (lambda z: z[0] - z[1], lambda z: z[1] - z[0]),
    "axes": (lambda z: jnp.sum(TABLE, 0) @ z, lambda z: jnp.sum(TABLE @ z)),
    "inner functions": (
        lambda z: jax.lax.cond(z[0] > 0, jnp.sin, jnp.cos, z[1]),
        lambda z: jax.lax.cond(z[0] > 0, jnp.cos, jnp.sin, z[1]),
    ),
    "what is returned": (lambda z: (z[0], z[1]), lambda z: [z[0], z[1]]),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_functions_are_others(name):
    first, second = (traced(f, POINT) for f in DIFFERENT[name])
    assert first.program != second.program


def rule_of(factor):
    @jax.custom_jvp
    def f(z):
        return z[0]

    f.defjvp(lambda primals, tangents: (f(*primals), factor * tangents[0][0]))
    return lambda z: f(z)


def test_rules_of_differentiation_count():
    first, other = (traced(rule_of(factor), POINT).program for factor in (1.0, 2.0))
    assert first != other


def test_points_in_other_precision():
    """The function is traced again, with the arrays that it captured at first."""
    table = np.ones((2, 3), np.float32)
    found = traced(lambda z: jnp.sum(table @ z), POINT)
    table[:] = 100.0
    z = np.ones(3, np.float32)
    assert found(jnp.asarray(z)) == 6.0
    assert found(jnp.asarray(z)).dtype == np.float32
    assert jax.jit(lambda z: found(z))(jnp.asarray(z)) == 6.0


def test_functions_of_trees_and_side_effects():
    ran = []

    def log_density(point):
        ran.append(1)
        return -jnp.sum(point["a"] ** 2) - point["b"][0]

    target = qg.Target.from_logdensity(log_density, example={"a": np.zeros((2, 2)), "b": [np.zeros(())]})
    value = eqx.filter_jit(lambda t, z: t.log_density(z))
    assert value(target, jnp.ones(5)) == target.log_density(jnp.ones(5)) == -5.0
    assert len(ran) == 1


def test_callbacks_run_at_each_call():
    seen = []

    def host(z):
        seen.append(z)
        return np.sum(z)

    out = jax.ShapeDtypeStruct((), np.float64)
    found = traced(lambda z: jax.pure_callback(host, out, z), POINT)
    assert [float(found(jnp.full(3, x))) for x in (1.0, 2.0)] == [3.0, 6.0]
    assert len(seen) == 2


@pytest.mark.parametrize("function", [jnp.sum, functools.partial(jnp.sum, axis=0)])
def test_functions_that_are_no_functions_of_python(function):
    assert traced(function, POINT)(Z) == np.sum(Z)
