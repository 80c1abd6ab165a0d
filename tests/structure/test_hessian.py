"""Blocks of a Hessian by coloured products, traces with them, and points put together from pieces."""

import jax.numpy as jnp
import numpy as np
import pytest

from quietgrad.structure import Structure, blocks_of_hessian
from quietgrad.structure.hessian import probes, trace_probes

SHAPES = [("chain", 1, 1), ("chain", 1, 2), ("chain", 1, 7), ("chain", 2, 5), ("arrowhead", 2, 4)]


def locals_of(kind, b, n):
    """A structure of locals alone in the order of an array (b, n), and a matrix with its zeros."""
    number = np.arange(b)[None, :] * n + np.arange(n)[:, None]
    structure = Structure(np.zeros(0, int), number, kind)
    rng, matrix = np.random.default_rng(b * n), np.zeros((b * n, b * n))
    for i in range(n):
        own = rng.normal(size=(b, b))
        matrix[np.ix_(number[i], number[i])] = own + own.T
        if kind == "chain" and i + 1 < n:
            tie = rng.normal(size=(b, b))
            matrix[np.ix_(number[i + 1], number[i])] = tie
            matrix[np.ix_(number[i], number[i + 1])] = tie.T
    return structure, number, matrix


@pytest.mark.turns(2)
@pytest.mark.parametrize(("kind", "b", "n"), SHAPES)
def test_blocks_are_read_from_their_products(kind, b, n):
    structure, number, matrix = locals_of(kind, b, n)
    found = blocks_of_hessian(lambda v: jnp.asarray(matrix) @ v, structure, np.dtype(float))
    for i in range(n):
        own = matrix[np.ix_(number[i], number[i])]
        assert np.allclose(found.diagonal[:, :, i], own, atol=1e-14)
        if kind == "chain" and i + 1 < n:
            tie = matrix[np.ix_(number[i + 1], number[i])]
            assert np.allclose(np.asarray(found.below)[:, :, i], tie, atol=1e-14)


@pytest.mark.parametrize("b", [1, 3])
def test_blocks_are_symmetric_though_others_meet_that_should_not(b):
    """What is not zero between blocks is added to them: the symmetric part of the sum is the block."""
    structure, number, matrix = locals_of("arrowhead", b, 4)
    matrix = np.random.default_rng(b).normal(size=matrix.shape)
    matrix = matrix + matrix.T
    found = blocks_of_hessian(lambda v: jnp.asarray(matrix) @ v, structure, np.dtype(float)).diagonal
    for i in range(4):
        whole = sum(matrix[np.ix_(number[i], number[j])] for j in range(4))
        np.testing.assert_allclose(found[:, :, i], 0.5 * (whole + whole.T), atol=1e-13)


@pytest.mark.parametrize(("kind", "b", "n"), SHAPES)
def test_a_trace_is_a_sum_over_the_probes(kind, b, n):
    """Of S H for any other H: the entries of S between blocks that do not meet are not asked for."""
    structure, number, s = locals_of(kind, b, n)
    h = np.random.default_rng(1).normal(size=s.shape)
    h = np.where(s != 0, h + h.T, 0.0)
    own = np.stack([s[np.ix_(number[i], number[i])] for i in range(n)], axis=-1)
    ties = [s[np.ix_(number[i + 1], number[i])] for i in range(n - 1)]
    below = np.stack(ties, axis=-1) if ties else np.zeros((b, b, 0))
    chained = jnp.asarray(below) if kind == "chain" else None
    w = np.asarray(trace_probes(structure, jnp.asarray(own), chained)).reshape(-1, b * n)
    c = np.asarray(probes(structure, np.dtype(float)))
    assert np.isclose(np.sum(w * (c @ h)), np.sum(s * h), rtol=1e-12)


ORDERS = {
    "as they are": np.arange(20),
    "one global last": np.r_[19, np.arange(19)],
    "globals on both sides": np.r_[0, 19, np.arange(1, 19)],
    "any": np.random.default_rng(0).permutation(20),
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_points_are_taken_apart_and_put_together(order):
    structure = Structure(order[:2], order[2:].reshape(2, 9).T)
    # 20 coordinates are worth five pieces.
    assert (structure.runs is None) == (np.count_nonzero(np.diff(order) != 1) >= 5)
    z = np.random.default_rng(1).normal(size=20)
    g, own = structure.split(jnp.asarray(z))
    assert np.array_equal(g, z[order[:2]])
    assert np.array_equal(own, z[order[2:]].reshape(2, 9))
    assert np.array_equal(structure.join(g, own), z)
