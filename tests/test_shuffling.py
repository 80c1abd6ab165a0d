"""Orders of rows: each row once, all orders alike as far as counts tell, and no array of all rows."""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from quietgrad.scale.shuffling import shuffled


def orders(size, keys):
    return np.asarray(jax.jit(jax.vmap(lambda key: shuffled(jnp.arange(size), size, key=key)))(keys))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 12, 13, 97, 1024, 1025])
def test_every_row_comes_once(size, key):
    for order in orders(size, jr.split(key, 5)):
        np.testing.assert_array_equal(np.sort(order), np.arange(size))


@pytest.mark.parametrize("size", [5, 12, 97])
def test_rows_and_pairs_of_rows_are_spread_evenly(size, key):
    """Where a row comes, and which one follows it, by chi squared; its sd is sqrt(2 cells)."""
    found, count = orders(size, jr.split(key, 4000)), 4000
    one = np.bincount(found[:, 0] * size + found[:, 1], minlength=size**2).reshape(size, size)
    assert not np.any(np.diagonal(one))
    pairs = one[~np.eye(size, dtype=bool)]
    for observed in (one.sum(axis=1), pairs):
        expected, cells = count / observed.size, observed.size - 1
        assert abs(np.sum((observed - expected) ** 2) / expected - cells) < 5 * np.sqrt(2 * cells)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_orders_of_a_few_rows_come_as_often(size, key):
    """By chi squared over all of them."""
    count, cells = 4000, math.factorial(size)
    found = np.unique(orders(size, jr.split(key, count)), axis=0, return_counts=True)[1]
    assert found.size == cells
    expected = count / cells
    assert abs(np.sum((found - expected) ** 2) / expected - (cells - 1)) < 5 * np.sqrt(2 * (cells - 1))


def test_neighbours_are_strangers(key):
    """Of two random rows the numbers are a third of all apart, with an sd of sqrt(1/18)."""
    size = 100_003
    order = orders(size, key[None])[0] / size
    for lag in (1, 2, 256):
        apart = np.abs(order[lag:] - order[:-lag])
        assert abs(np.mean(apart) - 1 / 3) < 5 * np.sqrt(1 / 18 / apart.size)


def test_no_array_has_as_many_numbers_as_there_are_rows(key):
    size = 1_000_003
    program = jax.make_jaxpr(lambda t: shuffled(t + jnp.arange(4), size, key=key))(7)
    assert not any(str(size) in str(equation.outvars) for equation in program.eqns)
    np.testing.assert_array_less(shuffled(size - 1 - jnp.arange(4), size, key=key), size)
