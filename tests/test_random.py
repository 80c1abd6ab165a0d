"""The fused generator gives what `jax.random` gives, bit for bit."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from quietgrad._util.random import bits, normal

SHAPES = [(), (1,), (7,), (10, 653), (3, 4, 5), (0, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("compiled", [False, True])
def test_bits_are_those_of_jax(shape, compiled):
    key = jr.fold_in(jr.key(7), 3)
    own = jax.jit(bits, static_argnums=0) if compiled else bits
    np.testing.assert_array_equal(own(shape, key=key), jr.bits(key, shape, jnp.uint32))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_draws_are_those_of_jax(dtype, impl):
    key = jr.key(11, impl=impl)
    np.testing.assert_array_equal(normal((9, 31), dtype, key=key), jr.normal(key, (9, 31), dtype))


def test_many_keys_at_once():
    keys = jr.split(jr.key(0), 5)
    own = jax.vmap(lambda k: normal((4,), jnp.float32, key=k))(keys)
    np.testing.assert_array_equal(own, jax.vmap(lambda k: jr.normal(k, (4,), jnp.float32))(keys))


def test_the_older_order_of_jax_is_respected():
    with jax.threefry_partitionable(new_val=False):
        key = jr.key(5)
        np.testing.assert_array_equal(bits((6, 7), key=key), jr.bits(key, (6, 7), jnp.uint32))
