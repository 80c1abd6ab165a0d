"""Adam that survives bad gradients, with its rate in the state so that changing it compiles nothing."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PyTree

from .._util.device import on_device

DECAY_MEAN, DECAY_SQUARE, EPSILON = 0.9, 0.999, 1e-8
# After the first steps, a gradient this many times its usual size (root mean square) is scaled down.
LIMIT, WARM_UP = 3.0, 20


class GuardedState(NamedTuple):
    """Adam's moments, the number of gradients taken in, and the learning rate."""

    taken: Int[Array, ""]
    mean: PyTree
    square: PyTree
    rate: Float[Array, ""]


def guarded_adam(rate: float) -> optax.GradientTransformation:
    """Adam; non-finite gradients are skipped, outliers scaled down."""

    def init(params: PyTree) -> GuardedState:
        # On the host: zeros made by jax would compile a program for each shape.
        zero = jax.tree.map(lambda x: on_device(np.zeros(x.shape, x.dtype)), params)
        dtype = jax.tree.leaves(params)[0].dtype
        return GuardedState(on_device(0, np.int32), zero, zero, on_device(rate, dtype))

    def update(grad: PyTree, state: GuardedState, params: PyTree = None) -> tuple[PyTree, GuardedState]:
        del params
        leaves = jax.tree.leaves(grad)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(g)) for g in leaves]))
        size = jnp.sqrt(_mean_ratio(grad, usual_square(state)))
        large = (state.taken > WARM_UP) & (size > LIMIT)
        scale = jnp.where(large, LIMIT / size, 1.0)
        safe = jax.tree.map(lambda g: jnp.where(finite, g * scale, 0.0), grad)
        taken = state.taken + finite
        mean = _mix(DECAY_MEAN, state.mean, safe, finite)
        square = _mix(DECAY_SQUARE, state.square, jax.tree.map(jnp.square, safe), finite)
        after = GuardedState(taken, mean, square, state.rate)
        known = 1 - DECAY_MEAN ** jnp.maximum(taken, 1)
        updates = jax.tree.map(
            lambda m, v: -state.rate * (m / known) / (jnp.sqrt(v) + EPSILON), mean, usual_square(after)
        )
        return updates, after

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def usual_square(state: GuardedState) -> PyTree:
    """Adam's estimate of each coordinate's mean squared gradient."""
    known = 1 - DECAY_SQUARE ** jnp.maximum(state.taken, 1)
    return jax.tree.map(lambda v: v / known, state.square)


def _mix(decay: float, old: PyTree, new: PyTree, take: Array) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(take, decay * a + (1 - decay) * b, a), old, new)


def _mean_ratio(grad: PyTree, square: PyTree) -> Float[Array, ""]:
    pairs = zip(jax.tree.leaves(grad), jax.tree.leaves(square), strict=True)
    ratios = [(jnp.sum(g**2 / (v + EPSILON)), g.size) for g, v in pairs]
    return sum((r for r, _ in ratios), jnp.zeros(())) / sum(n for _, n in ratios)
