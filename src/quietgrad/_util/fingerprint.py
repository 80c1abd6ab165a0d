"""Descriptions of functions that cannot be traced by themselves, as rules of differentiation.

Two functions are the same when their code, defaults, captured values and the values of the names that
they read from their module are. Where a function can be traced, its program says more: see `_tracing`.
"""

import dis
import functools
import hashlib
import types
from typing import Any

import numpy as np

# Bytes of an array beyond which its digest is kept.
DIGESTED = 2**16


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
            read = reads_print(value.__code__, value.__globals__, seen)
            return (value.__code__, id(value.__globals__), read, defaults, cells)
        case types.MethodType():
            return ("method", inner(value.__func__), inner(value.__self__))
        case functools.partial():
            return ("partial", inner(value.func), inner(value.args), inner(value.keywords))
        case tuple() | list():
            return (type(value), tuple(map(inner, value)))
        case dict():
            return (dict, tuple((inner(k), inner(v)) for k, v in value.items()))
        case np.ndarray() | np.generic():
            return (value.dtype.str, value.shape, _contents(np.asarray(value)))
        case None | bool() | int() | float() | complex() | str() | bytes() | type():
            return (type(value), value)
        case _:
            return Identity(value)


def reads(code: types.CodeType, module: dict[str, Any]) -> dict[str, Any]:
    """What a function reads from its module by name, also in functions of the module that it calls."""
    found: dict[str, Any] = {}
    todo = [code]
    while todo:
        for name in _global_names(todo.pop()):
            if name in found or name not in module:
                continue
            found[name] = value = module[name]
            if isinstance(value, types.FunctionType) and value.__globals__ is module:
                todo.append(value.__code__)
    return found


def reads_print(
    code: types.CodeType, module: dict[str, Any], seen: frozenset[int] = frozenset()
) -> tuple[Any, ...]:
    """A hashable description of `reads`; functions in it count by identity, values by themselves."""
    return tuple(
        (name, Identity(value) if isinstance(value, types.FunctionType) else fingerprint(value, seen))
        for name, value in sorted(reads(code, module).items())
    )


@functools.cache
def _global_names(code: types.CodeType) -> tuple[str, ...]:
    own = (i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    inner = (const for const in code.co_consts if isinstance(const, types.CodeType))
    return tuple(dict.fromkeys([*own, *(name for one in inner for name in _global_names(one))]))


def _contents(array: np.ndarray) -> bytes:
    """The numbers themselves, or a digest of many."""
    if array.nbytes <= DIGESTED or array.dtype.hasobject:
        return array.tobytes()
    return hashlib.blake2b(np.ascontiguousarray(array).view(np.uint8).data).digest()


class Identity:
    """Compares by identity and keeps the object alive, so that its address is not used again."""

    def __init__(self, value: Any):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "empty"
