"""A NumPyro model and its arguments as a pytree: arrays are leaves, wherever a handler keeps them.

So they can be replaced by others, of other rows or without numbers while tracing.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree
from numpyro.primitives import Messenger

from ..._util.device import on_device
from ..._util.fingerprint import Identity


class _Handler(eqx.Module):
    """An effect handler as its class and what it holds."""

    kind: type = eqx.field(static=True)
    held: dict[str, PyTree]

    def whole(self) -> Any:
        handler = object.__new__(self.kind)
        vars(handler).update({name: put_together(value) for name, value in self.held.items()})
        return handler


class _Partial(eqx.Module):
    """A `functools.partial` as its function and arguments."""

    fn: PyTree
    args: tuple[PyTree, ...]
    kwargs: dict[str, PyTree]

    def whole(self) -> Any:
        args, kwargs = put_together((self.args, self.kwargs))
        return functools.partial(put_together(self.fn), *args, **kwargs)


class _Constant(eqx.Module):
    """A value that is no array for jax: it has no hash, or the model needs its numbers."""

    value: Identity = eqx.field(static=True)

    def whole(self) -> Any:
        return self.value.value


_PARTS = (_Handler, _Partial, _Constant)


def take_apart(value: Any) -> PyTree:
    """The pytree whose array leaves are all arrays in `value`."""
    return jax.tree.map(_leaf, value)


def put_together(tree: PyTree) -> Any:
    """What was taken apart, with the arrays that are now in the tree."""
    return jax.tree.map(
        lambda x: x.whole() if isinstance(x, _PARTS) else x,
        tree,
        is_leaf=lambda x: isinstance(x, _PARTS),
    )


def constant(tree: PyTree, *, only_integers: bool) -> PyTree:
    """The tree with its arrays, or those of whole numbers, as constants of the program."""

    def fix(x: Any) -> Any:
        if not eqx.is_array(x) or jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return x
        if only_integers and jnp.issubdtype(x.dtype, jnp.inexact):
            return x
        return _Constant(Identity(np.asarray(x)))

    return jax.tree.map(fix, tree)


def _leaf(x: Any) -> Any:
    if isinstance(x, Messenger):
        # Names with underscores come from functools.update_wrapper and point at the wrapped function.
        held = {name: value for name, value in vars(x).items() if not name.startswith("__")}
        return _Handler(type(x), take_apart(held))
    if isinstance(x, functools.partial):
        return _Partial(take_apart(x.func), take_apart(x.args), take_apart(x.keywords))
    if isinstance(x, np.ndarray) and x.dtype.kind in "biufc":
        return on_device(np.array(x))  # a copy, as jax may share its memory, and keeps conversions
    if eqx.is_array(x) or _has_hash(x):
        return x
    return _Constant(Identity(x))


def _has_hash(x: Any) -> bool:
    try:
        hash(x)
    except TypeError:
        return False
    return True
