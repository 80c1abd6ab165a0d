"""How far the gradient stands out from its noise, read from the moments that Adam keeps anyway."""

from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import PyTree

from .guarded_adam import DECAY_MEAN, DECAY_SQUARE, GuardedState

# Gradients after which the running mean has forgotten what was before them.
LEAST = 20
TINY = 1e-30
# Beyond this the noise cannot be told from rounding.
MOST = 100.0


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
