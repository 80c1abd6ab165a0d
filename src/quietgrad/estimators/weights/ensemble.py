"""Small groups of coordinates, dealt like cards: each has a fit of its own, and weights are averaged.

With more columns than draws one fit has to be penalised until little is left of it. A fit on few
coordinates needs no such penalty, and the mean of many takes a little from each (Geffner & Domke 2018).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ..._util.checks import whole

# Times that all coordinates are dealt out. Groups of one deal leave out what coordinates of two of them
# share; more deals let them meet, at the price of more fits.
DEALS = 4
SEED = 20180


def deal(dim: int, group: int) -> Int[Array, "hands group"]:
    """Coordinates in groups of `group`, each coordinate in at least `DEALS` of them; always the same."""
    group = whole(group, "group", least=1)
    if group > dim:
        raise ValueError(f"group must be at most the {dim} coordinates of a point; got {group}")
    rng = np.random.default_rng(SEED)
    hands = []
    for _ in range(DEALS if group < dim else 1):
        order = rng.permutation(dim)
        # The last hand is filled up with cards of the first, which differ from its own.
        order = np.concatenate([order, order[: -dim % group]])
        hands.append(order.reshape(-1, group))
    return jnp.asarray(np.concatenate(hands))
