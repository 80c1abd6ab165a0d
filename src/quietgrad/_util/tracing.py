"""A function as the program that jax traces from it, with the arrays that it captured as its arguments.

What a function has read, from its closure, its module, objects or files, is in the program: numbers as
literals, arrays as constants. So two functions are the same if their programs are, whatever they are
made of; and constants that are passed as arguments make one compiled program serve other data.

A target's functions are `Traced` when it is made. What they captured is then part of the target: data
that change later, in place or by name, do not change it. A new target has them, and needs no new
compiled program if only numbers in arrays differ.
"""

import functools
import itertools
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer, eval_jaxpr
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal
from jaxtyping import Array, PyTree

from .captured import LIBRARIES, is_library, read_anew
from .device import on_device
from .fingerprint import Identity, fingerprint
from .simplify import simplified

# Programs that are distinguished; one that is forgotten is compiled again.
KNOWN = 4096

# jax keeps what it traced of functions that are jitted, or bodies of loops, with the values they read
# then. A new value of this context makes it trace them again.
_ANEW: Any = jax.make_user_context(None)
_COUNTER = itertools.count(1)
CHANGED = (
    "a function of this target has changed since the target was made: something that it reads is "
    "different now; make the target again"
)
# Shapes and types of arguments, and how they hang together.
Form = tuple[Any, tuple[tuple[tuple[int, ...], Any], ...]]


class Trace(NamedTuple):
    """The program of a function, the arrays that it captured, and the form of what it returns."""

    jaxpr: Jaxpr
    constants: tuple[Array, ...]
    out: PyTree

    def __call__(self, constants: tuple[Array, ...], leaves: list[Any]) -> PyTree:
        """The function's value at arguments of the shapes it was traced with."""
        values = eval_jaxpr(self.jaxpr, constants, *leaves)
        return jax.tree.unflatten(jax.tree.structure(self.out), values)

    @property
    def key(self) -> object:
        """An object that is the same one for the same program, whatever its constants."""
        return _known((jax.tree.structure(self.out), _described(self.jaxpr)))


def trace(function: Callable[..., Any], *args: PyTree) -> Trace:
    """The program of a function of arguments like these, which may be shapes, as it is now.

    Captured arrays are copied: what is changed in place afterwards does not change the trace.
    """
    held = read_anew(function)
    closed, out = jax.make_jaxpr(lambda *a: function(*a), return_shape=True)(*args)
    if any(map(_kept_by_jax, _inner(closed.jaxpr))):
        with _ANEW(next(_COUNTER)):
            closed, out = jax.make_jaxpr(lambda *a: function(*a), return_shape=True)(*args)
    del held
    with jax.ensure_compile_time_eval():  # now, if this is within another trace
        constants = tuple(map(_copied, closed.consts))
    return Trace(simplified(_frozen(closed.jaxpr)), constants, out)


def _copied(constant: Any) -> Any:
    if isinstance(constant, jax.Array):
        return constant
    return on_device(np.array(constant))


def _inner(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The programs inside a program."""
    for equation in jaxpr.eqns:
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(value):
                inner = value.jaxpr if isinstance(value, ClosedJaxpr) else value
                yield inner
                yield from _inner(inner)


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, Jaxpr | ClosedJaxpr)


def _kept_by_jax(jaxpr: Any) -> bool:
    """Whether an inner program is that of a function of the user, which jax may have traced before."""
    file = jaxpr.debug_info.func_filename
    return file is None or not file.startswith(_library_folders(len(sys.modules)))


@functools.lru_cache(maxsize=1)
def _library_folders(_: int) -> tuple[str, ...]:
    """As they are at this number of modules: they are imported one by one."""
    files = (getattr(sys.modules.get(name), "__file__", None) for name in sorted(LIBRARIES))
    return tuple(os.path.dirname(file) + os.sep for file in files if file)


def _frozen(jaxpr: Any) -> Any:
    """The program with literals of its own: one may be an array of the user, without axes."""
    equations = [_frozen_equation(equation) for equation in jaxpr.eqns]
    outvars = [_frozen_atom(atom) for atom in jaxpr.outvars]
    same = all(a is b for a, b in zip(equations, jaxpr.eqns, strict=True))
    if same and all(a is b for a, b in zip(outvars, jaxpr.outvars, strict=True)):
        return jaxpr
    return jaxpr.replace(eqns=equations, outvars=outvars)


def _frozen_equation(equation: JaxprEqn) -> JaxprEqn:
    changes: dict[str, Any] = {}
    if any(isinstance(_value(atom), np.ndarray) for atom in equation.invars):
        changes["invars"] = [_frozen_atom(atom) for atom in equation.invars]
    params = {name: _frozen_param(value) for name, value in equation.params.items()}
    if any(params[name] is not value for name, value in equation.params.items()):
        changes["params"] = params
    return equation.replace(**changes) if changes else equation


def _frozen_param(value: Any) -> Any:
    if isinstance(value, ClosedJaxpr):
        inner = _frozen(value.jaxpr)
        return value if inner is value.jaxpr else value.replace(jaxpr=inner)
    if isinstance(value, Jaxpr):
        return _frozen(value)
    if isinstance(value, tuple) and any(map(_is_jaxpr, value)):
        made = [_frozen_param(each) for each in value]
        if all(a is b for a, b in zip(made, value, strict=True)):
            return value
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    return value


def _frozen_atom(atom: Any) -> Any:
    value = _value(atom)
    return Literal(value.copy(), atom.aval) if isinstance(value, np.ndarray) else atom


def _value(atom: Any) -> Any:
    return atom.val if isinstance(atom, Literal) else None


@functools.lru_cache(maxsize=KNOWN)
def _known(description: tuple[Any, ...]) -> object:
    """Descriptions are long; what stands for one is compared at every call of a compiled function."""
    del description
    return object()


def _described(jaxpr: Jaxpr) -> tuple[Any, ...]:
    """A hashable description of a program: equal ones compute the same from the same constants."""
    numbers: dict[Any, int] = {}

    def atom(x: Any) -> Any:
        if isinstance(x, Literal):
            return x.aval, np.asarray(x.val).tobytes()
        return numbers.setdefault(x, len(numbers)), x.aval

    given = tuple(map(atom, (*jaxpr.constvars, *jaxpr.invars)))
    equations = tuple(
        (
            e.primitive,
            tuple(map(atom, e.invars)),
            tuple((name, _param(value)) for name, value in e.params.items()),
            tuple(map(atom, e.outvars)),
        )
        for e in jaxpr.eqns
    )
    return len(jaxpr.constvars), given, equations, tuple(map(atom, jaxpr.outvars))


def _param(value: Any) -> Any:
    match value:
        case ClosedJaxpr():
            return _described(value.jaxpr), tuple(map(_param, value.consts))
        case Jaxpr():
            return _described(value)
        case tuple() | list():
            return type(value), tuple(map(_param, value))
        case dict():
            return dict, tuple((_param(k), _param(v)) for k, v in value.items())
        case None | bool() | int() | float() | complex() | str() | bytes():
            return type(value), repr(value)
        case jax.Array() | np.ndarray() | np.generic():
            return str(value.dtype), np.shape(value), _bytes(value)
        case types.FunctionType():
            return _function(value)
        case _ if type(value).__name__ == "WrappedFun":  # jax's own, for rules of differentiation
            return _function(value.f), _param(value.transforms), _param(value.params)
        case _:
            try:
                hash(value)
            except TypeError:
                return Identity(value)
            return type(value), value


def _bytes(array: Any) -> bytes:
    if isinstance(array, jax.Array) and jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    return np.asarray(array).tobytes()


def _function(function: Any) -> Any:
    """A rule of differentiation by what it is made of.

    jax wraps rules in functions of its own, which it makes at each trace: of what these hold, the
    functions count, and not its records of the trace.
    """
    if not isinstance(function, types.FunctionType):
        return Identity(function)
    if not is_library(function.__module__):
        return fingerprint(function)
    if not function.__closure__:
        return Identity(function)
    held = (cell.cell_contents for cell in function.__closure__)
    kinds = (types.FunctionType, type, tuple, list, bool, int, str, jax.tree_util.PyTreeDef)
    counted = tuple(_param(x) for x in held if isinstance(x, kinds) or type(x).__name__ == "WrappedFun")
    return function.__code__, counted


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
