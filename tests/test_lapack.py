"""Functions over many points: as `jax.vmap`, and no LAPACK call so large that threads share it out."""

import functools
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from quietgrad._numerics.lapack import INLINE, _equations, operations, over_points


def gaussian_process(n):
    x = jnp.linspace(-1, 1, n)

    def log_density(z):
        kernel = jnp.exp(z[0] - ((x[:, None] - x[None, :]) * jnp.exp(z[1])) ** 2)
        root = jnp.linalg.cholesky(kernel + jnp.exp(z[2]) * jnp.eye(n))
        white = jax.scipy.linalg.solve_triangular(root, jnp.sin(3 * x), lower=True)
        return -0.5 * white @ white - jnp.sum(jnp.log(jnp.diagonal(root)))

    return log_density


triangular_solve = functools.partial(jax.lax.linalg.triangular_solve, left_side=True, lower=True)


def by_eigenvalues(z):
    return jnp.sum(jnp.log(jnp.linalg.eigvalsh(jnp.outer(z, z) + jnp.eye(3))))


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("f", "count"),
    [
        (gaussian_process(25), 1000),
        (jax.value_and_grad(gaussian_process(25)), 96),
        (jax.value_and_grad(gaussian_process(70)), 7),
        (jax.grad(by_eigenvalues), 64),
    ],
)
def test_equals_vmap_with_calls_that_are_done_inline(f, count, key):
    z = 0.3 * jr.normal(key, (count, 3))
    program = jax.make_jaxpr(lambda z: over_points(f, z))(z)
    for equation in _equations(program.jaxpr):
        if "eigh" in equation.primitive.name:
            assert equation.invars[0].aval.ndim == 2
        else:
            alone = all(np.prod(v.aval.shape[:-2]) == 1 for v in equation.invars)
            single = type("Program", (), {"eqns": [equation]})
            assert alone or operations(single) < INLINE
    # Other batches sum in another order: rounding times the condition number, which is below 1e4.
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9),
        over_points(f, z),
        jax.vmap(f)(z),
    )


@pytest.mark.parametrize(
    ("f", "at_once", "blocks"),
    [(gaussian_process(25), None, False), (jnp.sum, None, False), (jnp.sum, 2, True)],
)
def test_small_calls_and_other_functions_stay_one_batch(f, at_once, blocks, key):
    program = jax.make_jaxpr(lambda z: over_points(f, z, at_once=at_once))(jr.normal(key, (10, 3)))
    assert ("scan" in {e.primitive.name for e in _equations(program.jaxpr)}) == blocks


def test_the_function_is_traced_once_and_can_be_differentiated(key):
    traces = []

    def f(z):
        traces.append(1)
        return gaussian_process(25)(z)

    z = 0.3 * jr.normal(key, (40, 3))
    ours = jax.grad(lambda z: jnp.sum(over_points(f, z)))(z)
    assert len(traces) == 1
    theirs = jax.grad(lambda z: jnp.sum(jax.vmap(gaussian_process(25))(z)))(z)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("f", "shapes", "dtype", "count"),
    [
        (jnp.linalg.cholesky, [(5, 7, 7)], float, 5 * 7**3),
        (jnp.linalg.cholesky, [(7, 7)], complex, 3 * 7**3),
        (triangular_solve, [(4, 4), (4, 9)], float, 4 * 9 * 4),
        (triangular_solve, [(2, 4, 4), (2, 4, 9)], float, 2 * 4 * 9 * 4),
        (lambda a, b: jnp.linalg.cholesky(a) @ jnp.linalg.cholesky(b), [(3, 3), (3, 3)], float, 27),
        (jnp.linalg.eigvalsh, [(3, 3)], float, math.inf),
        (jnp.matmul, [(3, 3), (3, 3)], float, 0),
    ],
)
def test_operations_are_those_of_the_largest_call_as_jaxlib_counts_them(f, shapes, dtype, count):
    """Rows times columns times the side of the matrix, three times for complex numbers."""
    arguments = [jax.ShapeDtypeStruct(shape, np.dtype(dtype)) for shape in shapes]
    assert operations(jax.make_jaxpr(f)(*arguments).jaxpr) == count


def test_blocks_stay_below_the_limit_where_matrices_divide_it(key):
    """Of 1,000 operations each: 200 of them are the first batch that threads would share out."""
    x = jr.normal(key, (2 * INLINE // 1000, 10, 10))
    program = jax.make_jaxpr(lambda x: over_points(jnp.linalg.cholesky, x))(x)
    assert 0 < operations(program.jaxpr) < INLINE
