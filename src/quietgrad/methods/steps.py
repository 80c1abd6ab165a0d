"""One step of a run: what it changes, what stays, and the streams of random numbers behind it."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Int, Key, PyTree, UInt32

from .._fingerprint import Recipe
from .._random import key_of
from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..targets import Target


class Keys(NamedTuple):
    """Streams of a run, as the words of keys: the draws, and the order of rows."""

    draws: UInt32[Array, "2"]
    rows: UInt32[Array, "2"]


class Carry(NamedTuple):
    """What a step changes."""

    params: PyTree
    optimizer: PyTree
    estimator: PyTree
    order: Int[Array, " rows"]


class Job(eqx.Module):
    """What stays the same during a run."""

    target: Target
    static: PyTree
    estimator: AbstractEstimator
    optimizer: Recipe[optax.GradientTransformation] = eqx.field(static=True)
    batch_size: int | None = eqx.field(static=True)
    keys: Keys

    def family(self, carry: Carry) -> AbstractFamily:
        """q as it stands."""
        return eqx.combine(carry.params, self.static)

    def step(self, carry: Carry, t: Int[Array, ""]) -> Carry:
        """One gradient step."""
        descent, after = self.descent(carry, t)
        updates, optimizer = self.optimizer.value.update(descent, carry.optimizer, carry.params)
        return after._replace(params=optax.apply_updates(carry.params, updates), optimizer=optimizer)

    def descent(self, carry: Carry, t: Int[Array, ""]) -> tuple[PyTree, Carry]:
        """Minus the gradient of step t, and the estimator's state and the order of rows after it."""
        target, order = self._view(carry.order, t)
        estimate, state = self.estimator.step(
            target, self.family(carry), carry.estimator, key=jr.fold_in(key_of(self.keys.draws), t)
        )
        descent = jax.tree.map(jnp.negative, estimate.grad)
        return descent, carry._replace(estimator=state, order=order)

    def _view(self, order: Int[Array, " rows"], t: Int[Array, ""]) -> tuple[Target, Array]:
        if self.batch_size is None:
            return self.target, order
        epoch = t // (self.target.rows // self.batch_size)
        key = jr.fold_in(key_of(self.keys.rows), epoch)
        indices, order = rows_of_step(order, t, self.batch_size, key=key)
        return self.target.batch(indices), order


def rows_of_step(
    order: Int[Array, " rows"], t: Int[Array, ""], batch_size: int, *, key: Key[Array, ""]
) -> tuple[Int[Array, " batch"], Int[Array, " rows"]]:
    """The rows of step t: consecutive pieces of an order that is shuffled anew each epoch, by `key`."""
    place = t % (order.size // batch_size)

    def shuffle(_: Array) -> Array:
        return jr.permutation(key, order.size).astype(order.dtype)

    order = jax.lax.cond(place == 0, shuffle, lambda old: old, order)
    return jax.lax.dynamic_slice(order, (place * batch_size,), (batch_size,)), order


def strong(tree: PyTree) -> PyTree:
    """Arrays with their types spelled out: a weakly typed one would compile the loop a second time."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, dtype=x.dtype) if eqx.is_array(x) and not is_key(x) else x, tree
    )


def is_key(x: Array) -> bool:
    """Whether these are typed random keys."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
