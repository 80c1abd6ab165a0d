"""An optimiser as part of a compiled step: the same one if its updates are the same program.

`optax.adam(1e-2)` returns new functions on every call; compared by identity, each fit would compile its
steps again. A schedule that reads a number which has changed since is another optimiser.
"""

from typing import Any

import jax
import numpy as np
import optax
from jaxtyping import PyTree

from .._util.tracing import trace


class Optimizer:
    """Holds the optimiser and compares by its `key`."""

    def __init__(self, value: optax.GradientTransformation, key: Any):
        self.value, self._key = value, key

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optimizer) and self._key == other._key


def read_optimizer(optimizer: optax.GradientTransformation, params: PyTree, state: PyTree) -> Optimizer:
    """The optimiser as it is now, for parameters and a state like these."""
    params, state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (params, state))
    found = trace(lambda *args: optimizer.update(*args), params, state, params)
    held = tuple((str(x.dtype), np.asarray(x).tobytes()) for x in found.constants)
    return Optimizer(optimizer, (found.key, held))
