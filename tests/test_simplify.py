"""Simpler programs compute the same numbers, and keep what has to stay."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.core import eval_jaxpr
from jax.scipy.special import gammaln, logsumexp
from jax.scipy.stats import norm

from quietgrad._util.simplify import simplified


def traced(f, *args):
    """The program of f, before and after, with its constants."""
    closed = jax.make_jaxpr(f)(*args)
    return closed, simplified(closed.jaxpr)


def names(jaxpr):
    """Names of its primitives, in order."""
    return [equation.primitive.name for equation in jaxpr.eqns]


DATA = jnp.asarray(np.random.default_rng(0).poisson(3.0, 7))


def checked(x):
    """A density that checks its argument in NumPyro's way."""
    fine = (x == x) & (x != jnp.inf) & (x != -jnp.inf)
    return jnp.where(fine, -0.5 * ((x - 0.0) / 1.0) ** 2 - jnp.log(jnp.sqrt(2 * jnp.pi) * 1.0), -jnp.inf)


def counts(x):
    """Counts with a rate, and an expression that is computed twice."""
    rate = jnp.exp(x[0]) + jnp.exp(x[0]) * x[1] ** 2
    return jnp.sum(DATA * jnp.log(rate) - rate - gammaln(DATA + 1.0)) + jnp.sum(checked(x))


def looped(x):
    """A scan, a branch, a call of its own, and a custom rule of differentiation."""
    inner = jax.jit(lambda a: jnp.clip(a, -3.0, 3.0) * 1.0 + 0.0)

    def body(carry, d):
        carry = jnp.tanh(carry + 0.0) * inner(x[0]) + d
        return carry, logsumexp(jnp.stack([carry, x[1] * 1.0]))

    last, each = jax.lax.scan(body, x[1], DATA.astype(x.dtype))
    chosen = jax.lax.cond(x[0] > 0, lambda: last * 2, lambda: last - 1)
    return jnp.sum(each) + chosen + jax.nn.relu(x[0]) + jnp.sum(inner(x) + inner(x))


@pytest.mark.parametrize(
    "f", [lambda x: jnp.sum(checked(x)), counts, looped], ids=["one", "two", "three"]
)
@pytest.mark.parametrize("double", [False, True])
def test_values_and_gradients_are_the_same(f, double):
    with jax.enable_x64(double):
        x = jnp.asarray([0.7, -1.3])
        closed, simpler = traced(f, x)

        def again(x):
            return eval_jaxpr(simpler, closed.consts, x)[0]

        rtol = 1e-12 if double else 1e-5
        at = jr.normal(jr.key(0), (5, 2))
        found, expected = (jax.jit(jax.vmap(all_of(g)))(at) for g in (again, f))
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype == x.dtype
            np.testing.assert_allclose(one, other, rtol=rtol, atol=100 * rtol)


def all_of(f):
    """Value, gradient and Hessian."""
    return lambda x: (f(x), jax.grad(f)(x), jax.hessian(f)(x))


def test_a_point_that_is_not_a_number_has_no_density():
    closed, simpler = traced(checked, jnp.asarray(1.0))
    assert "is_finite" in names(simpler)
    assert "ne" not in names(simpler)
    for bad in (jnp.inf, -jnp.inf, jnp.nan):
        assert eval_jaxpr(simpler, closed.consts, jnp.asarray(bad))[0] == -jnp.inf


def test_other_questions_stay():
    """Two of the three comparisons, or those of two numbers, are another question."""

    def two(x):
        return (x == x) & (x != jnp.inf) & (x != jnp.inf)

    def other(x, y):
        return (x == x) & (x != jnp.inf) & (y != -jnp.inf)

    for f, args in ((two, (jnp.asarray(1.0),)), (other, (jnp.asarray(1.0), jnp.asarray(2.0)))):
        closed, simpler = traced(f, *args)
        assert "is_finite" not in names(simpler)
        for bad in (jnp.inf, -jnp.inf, jnp.nan):
            given = [jnp.asarray(bad)] * len(args)
            assert eval_jaxpr(simpler, closed.consts, *given)[0] == f(*given)


def test_what_repeats_or_leads_nowhere_is_dropped():
    def f(x):
        jnp.exp(x + 5.0)  # nowhere
        return jnp.sin(x) + jnp.sin(x) * (jnp.log(2.0) + 0.0)

    simpler = traced(f, 1.0)[1]
    assert names(simpler).count("sin") == 1
    assert "exp" not in names(simpler)
    assert "log" not in names(simpler)


def test_numbers_are_not_folded_where_that_would_change_them():
    """Whole numbers divide as jax divides them, and what is not finite stays to be computed."""

    def whole(x):
        return x + jax.lax.div(jnp.int32(7), jnp.int32(2))

    def infinite(x):
        return x * jnp.log(jnp.float32(0.0) * 1.0)

    assert eval_jaxpr(*_parts(whole, jnp.int32(1)), jnp.int32(1))[0] == 4
    assert eval_jaxpr(*_parts(infinite, 1.0), jnp.asarray(1.0))[0] == -jnp.inf


def _parts(f, *args):
    closed, simpler = traced(f, *args)
    return simpler, closed.consts


def test_captured_arrays_stay_arguments():
    """Other data in their place need no other program."""
    closed, simpler = traced(counts, jnp.zeros(2))
    assert len(simpler.constvars) == len(closed.consts)
    others = [2 * constant for constant in closed.consts]
    expected = eval_jaxpr(closed.jaxpr, others, jnp.ones(2))[0]
    np.testing.assert_allclose(eval_jaxpr(simpler, others, jnp.ones(2))[0], expected, rtol=1e-5)


def test_an_effect_is_not_dropped():
    def f(x):
        jax.debug.callback(lambda: None)
        return norm.logpdf(x)

    closed, simpler = traced(f, 1.0)
    assert names(simpler).count("debug_callback") == names(closed.jaxpr).count("debug_callback") == 1


def test_signs_of_zero_stay():
    """1 / (-0 + 0) and 1 / (-0 - 0) are infinities of different signs."""
    for f in (
        lambda x: x + 0.0,
        lambda x: x - 0.0,
        lambda x: x + -0.0,
        lambda x: x - -0.0,
        lambda x: 1.0 * x,
    ):
        closed, simpler = traced(f, jnp.asarray(1.0))
        given = jnp.asarray(-0.0)
        expected = np.signbit(eval_jaxpr(closed.jaxpr, closed.consts, given)[0])
        assert np.signbit(eval_jaxpr(simpler, closed.consts, given)[0]) == expected
