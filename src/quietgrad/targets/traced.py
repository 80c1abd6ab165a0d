"""A target's functions as traced programs, whose captured arrays are arguments.

A function is read when its target is made. What it captured is then part of the target: arrays are
copied, everything else is in the program. Data that change later, in place or by name, do not change the
target. A target made anew has them, and needs no new compiled program if only numbers in arrays differ.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree

from .._util.tracing import Trace, trace

CHANGED = (
    "a function of this target has changed since the target was made: something that it reads is "
    "different now; make the target anew"
)
# Shapes and types of arguments, and how they hang together.
Form = tuple[Any, tuple[tuple[tuple[int, ...], Any], ...]]


class _Program:
    """A function and its traces: the first, and those at arguments of other shapes or precision.

    Programs compare by the first. The others are made when they are needed, within compiled functions
    that are shared by all that compare equal; so one whose constants are not those of the first trace,
    one by one, is equal to nothing but itself from then on.
    """

    def __init__(self, function: Callable[..., Any], args: tuple[PyTree, ...], first: Trace):
        self.function, self.args, self.first = function, args, first
        self.form, self.key, self.alone = _form(args), first.key, False
        # The trace of each form, and whether its constants are its own.
        self.others: dict[Form, tuple[Trace, bool]] = {}

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _Program) or self.alone or other.alone:
            return False
        return self.key is other.key and self.form == other.form

    def at(self, args: tuple[PyTree, ...]) -> tuple[Trace, bool]:
        """The trace at arguments like these, and whether its constants are its own."""
        form = _form(args)
        if form == self.form:
            return self.first, False
        if form not in self.others:
            self.others[form] = self._other(args)
        return self.others[form]

    def _other(self, args: tuple[PyTree, ...]) -> tuple[Trace, bool]:
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), _dtype(x)), args)
        found, again = trace(self.function, *shapes), trace(self.function, *self.args)
        if again.key is not self.key:
            raise ValueError(CHANGED)
        if _same(found.constants, again.constants):
            return found, False
        if not _same(again.constants, self.first.constants):
            raise ValueError(CHANGED)
        self.alone = True
        return found, True


class Traced(eqx.Module):
    """A function by its program and the arrays that it captured."""

    constants: tuple[Array, ...]
    program: _Program = eqx.field(static=True)

    def __call__(self, *args: PyTree) -> Any:
        """The function's value."""
        args = jax.tree.map(lambda x: x if hasattr(x, "dtype") else jnp.asarray(x), args)
        found, own = self.program.at(args)
        return found(found.constants if own else self.constants, jax.tree.leaves(args))

    @property
    def out(self) -> PyTree:
        """The shape and type of what it returns."""
        return self.program.first.out


def traced(function: Callable[..., Any], *args: PyTree) -> Traced:
    """The function as it is now, for arguments like these, which may be shapes."""
    first = trace(function, *args)
    return Traced(first.constants, _Program(function, args, first))


def _form(args: tuple[PyTree, ...]) -> Form:
    leaves, form = jax.tree.flatten(args)
    return form, tuple((np.shape(x), _dtype(x)) for x in leaves)


def _dtype(x: Any) -> Any:
    # Numbers of NumPy become jax's, in its precision.
    return x.dtype if isinstance(x, jax.Array) else jax.dtypes.canonicalize_dtype(x.dtype)


def _same(some: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    """Whether arrays are equal, one by one."""
    with jax.ensure_compile_time_eval():
        return len(some) == len(others) and all(map(_equal, some, others))


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, Tracer) or isinstance(b, Tracer):
        return False
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    return np.asarray(a).tobytes() == np.asarray(b).tobytes()
