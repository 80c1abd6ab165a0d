"""A window of stochastic steps whose rate follows half a cosine, with the average of its iterates.

The optimiser works on one vector where parameters are many arrays, as those of a flow are: an operation
for each array is what such steps, and compiling them, would take most of their time for.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, PyTree

from .._util.compiling import program
from .._util.device import on_device
from .._util.later import optax
from .guarded_adam import GuardedState, guarded_adam
from .steps import Carry, Job

# So few arrays are left as they are: joining long ones costs more than it saves.
FEW = 4

# The first step, and the one after the last.
Span = tuple[Int[Array, ""], Int[Array, ""]]


class Rates(NamedTuple):
    """The rate at a window's first step and at its last; in between it follows half a cosine."""

    first: Float[Array, ""]
    last: Float[Array, ""]


@program
def run_window(
    job: Job, carry: Carry, sums: PyTree, piece: Span, span: Span, rates: Rates
) -> tuple[Carry, PyTree, PyTree]:
    """The steps of one piece of a window, the sums of the parameters after each, and their mean.

    `sums` are those of the pieces before, as `no_sums` for the first; the mean is right after the last
    piece. Most windows are of one piece.
    """
    first, last = span
    count = jnp.maximum(last - first, 1)
    joined, parted = _form(carry.params)

    def body(t: Array, loop: tuple[PyTree, Carry, PyTree]) -> tuple[PyTree, Carry, PyTree]:
        params, carry, sums = loop
        down = 0.5 * (1 - jnp.cos(jnp.pi * (t - first) / count))
        rate = (rates.first + down * (rates.last - rates.first)).astype(carry.optimizer.rate.dtype)
        descent, carry = job.descent(carry._replace(params=parted(params)), t)
        state = carry.optimizer._replace(rate=rate)
        updates, state = job.optimizer.value.update(joined(descent), state, params)
        params = optax.apply_updates(params, updates)
        return params, carry._replace(params=None, optimizer=state), jax.tree.map(jnp.add, sums, params)

    begin = joined(carry.params), carry._replace(params=None), sums
    params, carry, sums = jax.lax.fori_loop(*piece, body, begin)
    mean = jax.tree.map(lambda s: s / count.astype(s.dtype), sums)
    return carry._replace(params=parted(params)), sums, parted(mean)


def no_sums(params: PyTree) -> PyTree:
    """Zeros in the form in which `run_window` adds up parameters; made on the host, which compiles
    nothing."""
    leaves = jax.tree.leaves(params)
    if len(leaves) <= FEW:
        return jax.tree.map(lambda x: on_device(np.zeros(x.shape, x.dtype)), params)
    return on_device(np.zeros(sum(x.size for x in leaves), leaves[0].dtype))


def fresh_optimizer(params: PyTree) -> GuardedState:
    """The state of the optimiser of windows that begin at these parameters."""
    return guarded_adam(0.0).init(no_sums(params))  # pyright: ignore[reportReturnType]


def in_form_of(params: PyTree, vector: PyTree) -> PyTree:
    """What the optimiser keeps for each parameter, in the form of the parameters."""
    return _form(params)[1](vector)


def _form(params: PyTree) -> tuple[Callable[[PyTree], PyTree], Callable[[PyTree], PyTree]]:
    """To the form that the optimiser works on, and back."""
    if len(jax.tree.leaves(params)) <= FEW:
        return (lambda tree: tree), (lambda tree: tree)
    return (lambda tree: ravel_pytree(tree)[0]), ravel_pytree(params)[1]
