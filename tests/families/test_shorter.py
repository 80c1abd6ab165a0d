"""Programs with less in them: the same values and derivatives, and none of what is constant."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln

from quietgrad.families.conditional.shorter import shorter


def model(z):
    """A degree of freedom on either side of the locals, with special functions of both."""
    first, x, last = jnp.split(z, [1, 9])
    hyper = gammaln(jnp.exp(first[0])) + gammaln(jnp.exp(z[9]) + 1)
    walk = jnp.sum((x[1:] - x[:-1]) ** 2) * jnp.exp(last[0])
    return hyper - walk - jnp.sum(jnp.log1p(x**2 / jnp.exp(first[0]))) - jnp.sum(z[7:10] ** 4)


def joined(g, x):
    """Put together from globals and locals."""
    return model(jnp.concatenate([g[:1], x, g[1:]]))


def names(jaxpr):
    """Primitives of a program and of all within it."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(list(equation.params.values())):
            if hasattr(value, "eqns") or hasattr(value, "jaxpr"):
                yield from names(getattr(value, "jaxpr", value))


def test_values_and_third_derivatives_are_the_same():
    g, x = jnp.asarray([0.3, -0.4]), jnp.asarray(np.random.default_rng(0).normal(size=8))
    found = shorter(joined, g, x)
    assert np.isclose(found(g, x), joined(g, x), rtol=1e-12)

    @jax.jit
    def third(g, x):
        def of(f):
            second = jax.hessian(f, argnums=1)
            return jax.jacfwd(second, argnums=(0, 1))(g, x)

        return of(found), of(joined)

    for ours, theirs in zip(*third(g, x), strict=True):
        assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_derivatives_by_locals_leave_functions_of_globals_alone():
    """Where they were taken through the joined point, they had digamma functions times zero."""
    g, x = jnp.asarray([0.3, -0.4]), jnp.zeros(8)

    def along(f):
        def push(g, x):
            return jax.jvp(lambda x: jax.jvp(lambda x: f(g, x), (x,), (x,))[1], (x,), (x,))[1]

        return set(names(jax.make_jaxpr(push)(g, x).jaxpr))

    assert "digamma" in along(joined)
    assert "digamma" not in along(shorter(joined, g, x))
