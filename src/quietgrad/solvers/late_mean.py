"""The mean of late iterates: what a run would have without the noise of its steps.

With a constant rate the iterates move around the optimum, and the ELBO stops rising at a distance that
depends on the rate and the noise. The mean of many of them is closer, so that it tells the distance.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from .._util.device import on_device

# Iterates that a mean needs at least.
LEAST = 8


class Sums(NamedTuple):
    """Parameters added up over some looks."""

    number: int = 0
    arrays: Sequence[np.ndarray] = ()


class Late(NamedTuple):
    """Sums over the looks since the last power of two, and from the one before up to it.

    The first are the last half of a run or less, and need no knowledge of when it ends.
    """

    looks: int = 0
    recent: Sums = Sums()
    before: Sums = Sums()

    def after(self, params: PyTree) -> "Late":
        """With the parameters at one more look."""
        looks, recent, before = self.looks + 1, self.recent, self.before
        if looks & (looks - 1) == 0:
            recent, before = Sums(), recent
        return Late(looks, _added(recent, Sums(1, jax.device_get(jax.tree.leaves(params)))), before)

    def mean(self, params: PyTree) -> PyTree | None:
        """The mean, in the form of parameters; none of too few looks."""
        number, arrays = self.recent
        if number < LEAST:
            number, arrays = _added(self.recent, self.before)
        if number < LEAST:
            return None
        form, dtypes = jax.tree.structure(params), [x.dtype for x in jax.tree.leaves(params)]
        means = [on_device(x / number, d) for x, d in zip(arrays, dtypes, strict=True)]
        return jax.tree.unflatten(form, means)


def _added(a: Sums, b: Sums) -> Sums:
    if not a.number or not b.number:
        return a if a.number else b
    return Sums(a.number + b.number, [x + y for x, y in zip(a.arrays, b.arrays, strict=True)])
