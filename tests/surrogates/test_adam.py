"""The learner's Adam against optax's."""

import jax.numpy as jnp
import jax.random as jr
import optax
from oracles import assert_same

from quietgrad.surrogates.adam import adam


def test_steps_are_those_of_optax(key):
    """On gradients of very different sizes, zeros among them."""
    sizes = jnp.asarray([0.0, 1e-9, 1e-3, 1.0, 1e6])
    params = {"vector": jnp.ones(5), "number": jnp.asarray(2.0)}
    ours, theirs = adam(0.01), optax.adam(0.01)
    state, memory = ours.init(params), theirs.init(params)
    for step in range(300):
        grads = {
            "vector": sizes * jr.normal(jr.fold_in(key, step), (5,)),
            "number": jnp.asarray(3.0 + step),
        }
        found, state = ours.update(grads, state, params)
        expected, memory = theirs.update(grads, memory, params)
        # 1 - b^t, of size 0.001 at the first step, rounds in optax.
        assert_same(found, expected, operations=1e3, scale=0.01)
