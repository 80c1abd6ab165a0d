"""L-BFGS inside a compiled program: its state, and iterations whose number is known at run time only."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from ..steps import strong


class Lbfgs(NamedTuple):
    """Parameters, and what the optimiser remembers of its way there."""

    params: PyTree
    optimizer: PyTree


def begin(params: PyTree, memory: int) -> Lbfgs:
    """A start without memory of earlier iterates."""
    return strong(Lbfgs(params, optax.lbfgs(memory_size=memory).init(params)))


def descend(
    loss: Callable[[PyTree], Float[Array, ""]], at: Lbfgs, iterations: Int[Array, ""], memory: int
) -> Lbfgs:
    """Minimise `loss`; a step to non-finite parameters is not taken."""
    optimizer = optax.lbfgs(memory_size=memory)
    value_and_grad = optax.value_and_grad_from_state(loss)

    def iterate(_: Int[Array, ""], at: Lbfgs) -> Lbfgs:
        value, grad = value_and_grad(at.params, state=at.optimizer)
        updates, state = optimizer.update(
            grad, at.optimizer, at.params, value=value, grad=grad, value_fn=loss
        )
        params = optax.apply_updates(at.params, updates)
        after = Lbfgs(params, state)
        finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(params)]))
        return jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, at)

    return jax.lax.fori_loop(0, iterations, iterate, at)
