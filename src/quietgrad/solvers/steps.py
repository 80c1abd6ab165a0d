"""One step of a run: what it changes, what stays, and the streams of random numbers behind it."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Int, Key, PyTree, UInt32

from .._util.random import key_of
from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..scale.shuffling import shuffled
from ..targets import Target
from .optimizer import Optimizer


class Keys(NamedTuple):
    """Streams of a run, as the words of keys: the draws, and the order of rows."""

    draws: UInt32[Array, "2"]
    rows: UInt32[Array, "2"]


class Carry(NamedTuple):
    """What a step changes."""

    params: PyTree
    optimizer: PyTree
    estimator: PyTree


class Job(eqx.Module):
    """What stays the same during a run."""

    target: Target
    static: PyTree
    estimator: AbstractEstimator
    optimizer: Optimizer = eqx.field(static=True)
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
        """Minus the gradient of step t, and the estimator's state after it."""
        estimate, state = self.estimator.step(
            self._view(t),
            self.family(carry),
            carry.estimator,
            key=jr.fold_in(key_of(self.keys.draws), t),
        )
        return jax.tree.map(jnp.negative, estimate.grad), carry._replace(estimator=state)

    def _view(self, t: Int[Array, ""]) -> Target:
        if self.batch_size is None:
            return self.target
        epoch = t // (self.target.rows // self.batch_size)
        key = jr.fold_in(key_of(self.keys.rows), epoch)
        return self.target.batch(rows_of_step(t, self.target.rows, self.batch_size, key=key))


def rows_of_step(
    t: Int[Array, ""], rows: int, batch_size: int, *, key: Key[Array, ""]
) -> Int[Array, " batch"]:
    """The rows of step t: consecutive pieces of an order that `key`, one for each epoch, stands for."""
    place = t % (rows // batch_size)
    return shuffled(place * batch_size + jnp.arange(batch_size), rows, key=key)


def strong(tree: PyTree) -> PyTree:
    """Arrays with their types spelled out: a weakly typed one would compile the loop a second time."""
    return jax.tree.map(
        lambda x: jnp.asarray(x, dtype=x.dtype) if eqx.is_array(x) and not is_key(x) else x, tree
    )


def is_key(x: Array) -> bool:
    """Whether these are typed random keys."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
