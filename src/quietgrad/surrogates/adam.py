"""Adam (Kingma & Ba 2015) for what a surrogate learns: `optax.adam`, with its corrections on scalars.

An estimator's step has little time for the learner. With c1 = 1 - b1^t and c2 = 1 - b2^t, Adam's
(m / c1) / (sqrt(n / c2) + eps) is sqrt(c2) / c1 * m / (sqrt(n) + eps sqrt(c2)): one division for each
number instead of three.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8


class AdamState(NamedTuple):
    """The number of steps taken and the averages of gradients and of their squares."""

    steps: Float[Array, ""]
    first: PyTree
    second: PyTree


def adam(rate: float | Float[Array, ""]) -> optax.GradientTransformation:
    """The same steps as `optax.adam(rate)`."""

    def init(params: PyTree) -> AdamState:
        zero = jax.tree.map(jnp.zeros_like, params)
        return AdamState(jnp.zeros(()), zero, zero)

    def update(grads: PyTree, state: AdamState, params: PyTree = None) -> tuple[PyTree, AdamState]:
        del params
        steps = state.steps + 1
        # 1 - b^t, which would round where t is small.
        c1, c2 = (-jnp.expm1(math.log(decay) * steps) for decay in (FIRST, SECOND))
        length, floor = -rate * jnp.sqrt(c2) / c1, EPSILON * jnp.sqrt(c2)
        first = jax.tree.map(lambda m, g: FIRST * m + (1 - FIRST) * g, state.first, grads)
        second = jax.tree.map(lambda n, g: SECOND * n + (1 - SECOND) * g * g, state.second, grads)

        def move(m: Array, n: Array) -> Array:
            return length.astype(m.dtype) * (m / (jnp.sqrt(n) + floor.astype(m.dtype)))

        return jax.tree.map(move, first, second), AdamState(steps, first, second)

    return optax.GradientTransformation(init, update)  # pyright: ignore
