"""NumPy arrays that a function can reach, so that jax reads them as they are now.

Without double precision jax keeps the conversion of a float64 or int64 array as long as any program uses
it, under the identity of the array: changed in place, the array would still be read as it was.
"""

import contextlib
import functools
import sys
import types
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

# Packages whose functions read no data of the user by name: only what they hold is searched.
LIBRARIES = frozenset(
    "jax jaxlib numpy scipy equinox optax numpyro pymc pytensor flowjax xarray pandas quietgrad".split()
)
# Objects that are looked at, far more than a model has: a function may hold anything.
MOST = 20_000


def read_anew(function: Any) -> list[np.ndarray]:
    """Bring jax's conversions of the arrays that `function` reaches up to date.

    Returns the conversions: as long as they are alive, jax uses them.
    """
    if jax.dtypes.canonicalize_dtype(np.float64) == np.float64:
        return []
    found = []
    for array in _arrays(function):
        if array.dtype.kind in "iufc" and jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
            held = _converted(array)
            if held is not None:
                now = array.astype(held.dtype)
                if now.tobytes() != held.tobytes():
                    np.copyto(held, now)
                found.append(held)
    return found


def is_library(module: str | None) -> bool:
    """Whether a module belongs to one of `LIBRARIES`, or to Python itself."""
    package = (module or "").split(".", 1)[0]
    return package in LIBRARIES or (package in sys.stdlib_module_names and package != "__main__")


def _converted(array: np.ndarray) -> np.ndarray | None:
    """The array as a constant of a program: jax's own object, if it keeps one."""
    closed = jax.make_jaxpr(lambda: jax.lax.neg(array))()
    literals = (getattr(atom, "val", None) for eqn in closed.jaxpr.eqns for atom in eqn.invars)
    held = next((x for x in (*closed.consts, *literals) if isinstance(x, np.ndarray)), None)
    return held if held is not None and held.flags.writeable else None


def _arrays(function: Any) -> Iterator[np.ndarray]:
    seen: dict[int, Any] = {}
    todo = [function]
    while todo and len(seen) < MOST:
        value = todo.pop()
        if id(value) in seen or isinstance(value, _ATOMS):
            continue
        seen[id(value)] = value
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject:
                todo.extend(value.reshape(-1).tolist())
            else:
                yield value
        else:
            todo.extend(_held(value))


_JITTED = type(jax.jit(lambda: None))  # noqa: TID251
_ATOMS = (str, bytes, int, float, complex, type(None), types.ModuleType, np.generic, np.dtype, jax.Array)


def _held(value: Any) -> Iterator[Any]:
    """What an object holds or, if it is a function, reads by name."""
    match value:
        case dict():
            yield from value.values()
        case tuple() | list() | set() | frozenset():
            yield from value
        case types.FunctionType():
            yield from (value.__defaults__ or ())
            yield from (value.__kwdefaults__ or {}).values()
            yield from vars(value).values()
            for cell in value.__closure__ or ():
                try:
                    yield cell.cell_contents
                except ValueError:  # not set yet
                    continue
            if not is_library(value.__module__):
                yield from _read_by_name(value.__code__, value.__globals__)
        case functools.partial():
            yield from (value.func, value.args, value.keywords)
        case types.MethodType():
            yield from (value.__func__, value.__self__)
        case type():
            if not is_library(value.__module__):
                yield from vars(value).values()
        case property():
            yield value.fget
        case staticmethod() | classmethod():
            yield value.__func__
        case _:
            yield from _attributes(value)


def _attributes(value: Any) -> Iterator[Any]:
    """What an object has without running any code of its own."""
    if isinstance(value, _JITTED):
        yield vars(value).get("__wrapped__")
    try:
        yield from vars(value).values()
    except TypeError:  # it has slots, or nothing
        pass
    for kind in type(value).__mro__:
        for descriptor in vars(kind).values():
            if isinstance(descriptor, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # not set
                    yield descriptor.__get__(value)
    if not is_library(type(value).__module__):
        yield type(value)


def _read_by_name(code: types.CodeType, module: dict[str, Any]) -> Iterator[Any]:
    """Globals that code mentions, and attributes that it mentions of modules among them."""
    for name in code.co_names:
        if name in module:
            value = module[name]
            yield value
            if isinstance(value, types.ModuleType) and not is_library(value.__name__):
                yield from (getattr(value, other) for other in code.co_names if hasattr(value, other))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _read_by_name(constant, module)
