"""Functions made twice by the same recipe count as one, so that jit does not compile them again.

`optax.adam(1e-2)` returns new closures on every call; compared by identity, each call of `fit` would
recompile. Two functions are the same recipe when their code, globals, defaults and captured values are.
"""

import functools
import types
from typing import Any, Generic, TypeVar

import numpy as np

T = TypeVar("T")


class Recipe(Generic[T]):
    """Holds `value` and compares by how it was made."""

    def __init__(self, value: T):
        self.value = value
        self._print = fingerprint(value)

    def __hash__(self) -> int:
        return hash(self._print)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self._print == other._print


def fingerprint(value: Any, seen: frozenset[int] = frozenset()) -> Any:
    """A hashable description of `value`; falls back to identity where it has no better one."""
    if id(value) in seen:
        return "recursive"
    seen = seen | {id(value)}

    def inner(v: Any) -> Any:
        return fingerprint(v, seen)

    match value:
        case types.FunctionType():
            cells = tuple(inner(_content(cell)) for cell in value.__closure__ or ())
            defaults = inner((value.__defaults__, value.__kwdefaults__))
            return (value.__code__, id(value.__globals__), defaults, cells)
        case types.MethodType():
            return ("method", inner(value.__func__), inner(value.__self__))
        case functools.partial():
            return ("partial", inner(value.func), inner(value.args), inner(value.keywords))
        case tuple() | list():
            return (type(value), tuple(map(inner, value)))
        case dict():
            return (dict, tuple((inner(k), inner(v)) for k, v in value.items()))
        case np.ndarray() | np.generic():
            return (value.dtype.str, value.shape, value.tobytes())
        case None | bool() | int() | float() | complex() | str() | bytes() | type():
            return (type(value), value)
        case _:
            return _Identity(value)


class _Identity:
    """Compares by identity and keeps the object alive, so that its address is not used again."""

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"
