"""Many small matrices along the last axis, written out or by LAPACK: as NumPy does one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quietgrad.structure.small_matrices import WRITTEN_OUT, cholesky, root_of_inverse, solve_lower

# The second is beyond the loops that are written out. No two axes have one length.
SIZES = [3, WRITTEN_OUT + 1]
COLUMNS, MANY = 2, 4


def roots(b):
    """Lower triangular, (n, b, b); conditions are below 100."""
    rng = np.random.default_rng(b)
    return np.tril(rng.normal(size=(MANY, b, b)), -1) / b + 2 * np.eye(b)


def last(x):
    """The matrices along the last axis."""
    return jnp.asarray(np.moveaxis(x, 0, -1))


def first(x):
    return np.moveaxis(np.asarray(x), -1, 0)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("b", SIZES)
def test_triangular_systems_are_solved_one_by_one(b, transposed):
    root, right = roots(b), np.random.default_rng(0).normal(size=(MANY, b, COLUMNS))
    found = jax.jit(lambda root, right: solve_lower(root, right, transposed=transposed))(
        last(root), last(right)
    )
    matrix = np.swapaxes(root, 1, 2) if transposed else root
    np.testing.assert_allclose(first(found), np.linalg.solve(matrix, right), rtol=0, atol=1e-12)


@pytest.mark.parametrize("b", SIZES)
def test_roots_are_lower_triangular_and_multiply_to_the_matrix_or_its_inverse(b):
    root = roots(b)
    matrices = root @ np.swapaxes(root, 1, 2)
    found, inverse = jax.jit(lambda m: (cholesky(m), root_of_inverse(m)))(last(matrices))
    np.testing.assert_allclose(first(found), root, rtol=0, atol=1e-12)
    inverse = first(inverse)
    np.testing.assert_array_equal(inverse, np.tril(inverse))
    product = inverse @ np.swapaxes(inverse, 1, 2)
    np.testing.assert_allclose(product, np.linalg.inv(matrices), rtol=0, atol=1e-12)
