"""Adam that survives bad gradients, and the signal-to-noise ratio of the gradient from its moments.

The rate is part of the state, so that changing it compiles nothing.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from .._util.device import on_device
from .._util.later import optax

DECAY_MEAN, DECAY_SQUARE, EPSILON = 0.9, 0.999, 1e-8
# After the first steps, a gradient this many times its usual size (root mean square) is scaled down.
LIMIT, WARM_UP = 3.0, 20
# Gradients after which the running mean has forgotten what was before them.
LEAST = 20
TINY = 1e-30
# Beyond this the noise cannot be distinguished from rounding.
MOST = 100.0


class GuardedState(NamedTuple):
    """Adam's moments, the number of gradients taken in, and the learning rate."""

    taken: Int[Array, ""]
    mean: PyTree
    square: PyTree
    rate: Float[Array, ""]


def guarded_adam(rate: float) -> "optax.GradientTransformation":
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


def signal_to_noise(before: PyTree, after: PyTree) -> float | None:
    """The gradient's squared mean over its variance, a mean over coordinates; None if not known.

    `before` and `after` are states of Adam, k steps apart. With m its running mean of decay b, E m^2 =
    mean^2 + c variance, c = (1 - b) / (1 + b). The mean of g^2 over the k steps is (v_after - d^k
    v_before) / (1 - d^k), d being the other decay: the running mean of squares itself would remember the
    first and largest gradients. Optax's decays are taken to be its defaults, which are ours.
    """
    first, last = _moments(before), _moments(after)
    if first is None or last is None or last[0] - first[0] < LEAST:
        return None
    steps = last[0] - first[0]
    old = DECAY_SQUARE**steps
    shares = []
    for m, v, v_before in zip(last[1], last[2], first[2], strict=True):
        square = np.maximum((v - old * v_before) / (1 - old), TINY)
        # A running mean of n gradients from zero holds 1 - b^n of them.
        shares.append(np.minimum((m / (1 - DECAY_MEAN ** last[0])) ** 2 / square, 1.0).ravel())
    chance = (1 - DECAY_MEAN) / (1 + DECAY_MEAN)
    share = float((np.mean(np.concatenate(shares)) - chance) / (1 - chance))
    return float(np.clip(share / max(1 - share, TINY), 0.0, MOST))


def _moments(state: PyTree) -> tuple[int, list[np.ndarray], list[np.ndarray]] | None:
    """Gradients taken in, their running means and those of their squares; None if this is not Adam."""

    def adam(node: Any) -> bool:
        return isinstance(node, GuardedState | optax.ScaleByAdamState)

    for node in filter(adam, jax.tree.leaves(state, is_leaf=adam)):
        if isinstance(node, GuardedState):
            count, mean, square = node.taken, node.mean, node.square
        else:
            count, mean, square = node.count, node.mu, node.nu
        return int(count), _arrays(mean), _arrays(square)
    return None


def _arrays(tree: PyTree) -> list[np.ndarray]:
    return [np.asarray(leaf, float) for leaf in jax.tree.leaves(tree)]
