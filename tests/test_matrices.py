"""Matrices in batches: as one by one, however they are mapped, in blocks that need no other thread."""

import functools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from quietgrad._numerics.lapack import INLINE, pseudo_inverse, solve_positive, solve_root


def matrices(key, *shape):
    root = jr.normal(key, (*shape, 6, 6))
    return jnp.einsum("...ij,...kj->...ik", root, root) + jnp.eye(6).reshape((1,) * len(shape) + (6, 6))


def right(matrix):
    return matrix[:, :2] + 1


FUNCTIONS = {
    "solve": (lambda a: solve_positive(a, right(a)), lambda a: np.linalg.solve(a, right(a))),
    "pseudo-inverse": (pseudo_inverse, np.linalg.pinv),
    "hermitian": (functools.partial(pseudo_inverse, hermitian=True), np.linalg.pinv),
    "root": (
        lambda a: solve_root(a, right(a)),
        lambda a: np.hstack([r := np.linalg.cholesky(a), np.linalg.solve(r, right(a))]),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_batches_of_batches_are_one_by_one(name, key):
    ours, numpys = FUNCTIONS[name]
    given = matrices(key, 3, 500)
    mapped = jax.jit(jax.vmap(jax.vmap(ours)))(given)
    expected = np.stack([numpys(np.asarray(a)) for a in given.reshape(-1, 6, 6)])
    # Conditions are below 1e4: eigenvalues lie between one and some forty.
    np.testing.assert_allclose(mapped.reshape(expected.shape), expected, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours(given[0, 0]), expected[0], rtol=0, atol=1e-9)


def test_what_is_not_mapped_is_shared(key):
    a = matrices(key)
    b = jr.normal(key, (7, 6, 2))
    mapped = jax.vmap(lambda b: solve_positive(a, b))(b)
    np.testing.assert_allclose(mapped, np.stack([np.linalg.solve(a, x) for x in b]), rtol=0, atol=1e-9)


def batches(jaxpr):
    """Matrices in each LAPACK call of a program."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("cholesky", "svd", "eigh"):
            yield int(np.prod(equation.invars[0].aval.shape[:-2]))
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from batches(inner)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="only the CPU shares out batches by threads")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_call_is_so_large_that_threads_share_it(name):
    ours, _ = FUNCTIONS[name]
    program = jax.make_jaxpr(jax.vmap(jax.vmap(ours)))(jnp.zeros((10, 500, 6, 6)))
    found = list(batches(program.jaxpr))
    most = 1 if "inverse" in name or name == "hermitian" else (INLINE - 1) // 6**3
    assert found
    assert max(found) <= most


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_matrix_by_itself_needs_no_loop(name):
    ours, _ = FUNCTIONS[name]
    assert "scan" not in str(jax.make_jaxpr(ours)(jnp.zeros((6, 6))))
    assert "scan" in str(jax.make_jaxpr(jax.vmap(ours))(jnp.zeros((5000, 6, 6))))
