"""One step of a run: what it changes, what stays, the streams of random numbers, and late iterates."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, Key, PyTree, UInt32

from .._util.device import on_device
from .._util.later import optax
from .._util.random import key_of
from .._util.tracing import trace
from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..scale.shuffling import shuffled
from ..targets import Target

# Iterates that a mean needs at least.
LEAST = 8


class Optimizer:
    """An optimiser as part of a compiled step: the same one if its updates are the same program.

    `optax.adam(1e-2)` returns new functions on every call; compared by identity, each fit would compile
    its steps again. A schedule that reads a number which has changed since is another optimiser.
    """

    def __init__(self, value: "optax.GradientTransformation", key: Any):
        self.value, self._key = value, key

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Optimizer) and self._key == other._key


def read_optimizer(
    optimizer: "optax.GradientTransformation", params: PyTree, state: PyTree
) -> Optimizer:
    """The optimiser as it is now, for parameters and a state like these."""
    params, state = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), (params, state))
    found = trace(lambda *args: optimizer.update(*args), params, state, params)
    held = tuple((str(x.dtype), np.asarray(x).tobytes()) for x in found.constants)
    return Optimizer(optimizer, (found.key, held))


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


class Sums(NamedTuple):
    """Parameters added up over some evaluations."""

    number: int = 0
    arrays: Sequence[np.ndarray] = ()


class Late(NamedTuple):
    """The mean of late iterates: what a run would have without the noise of its steps.

    With a constant rate the iterates move around the optimum, and the ELBO stops rising at a distance
    that depends on the rate and the noise. The mean of many of them is closer, so that it shows the
    distance. Kept are sums over the evaluations since the last power of two, and from the one before up
    to it. The first are the last half of a run or less, and need no knowledge of when it ends.
    """

    evaluations: int = 0
    recent: Sums = Sums()
    before: Sums = Sums()

    def after(self, params: PyTree) -> "Late":
        """With the parameters at one more evaluation."""
        number, recent, before = self.evaluations + 1, self.recent, self.before
        if number & (number - 1) == 0:
            recent, before = Sums(), recent
        return Late(number, _added(recent, Sums(1, jax.device_get(jax.tree.leaves(params)))), before)

    def mean(self, params: PyTree) -> PyTree | None:
        """The mean, in the form of parameters; None of too few evaluations."""
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
