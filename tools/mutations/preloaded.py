"""The package, imported once in the process that forks: a fork changes the code of functions in place.

Importing quietgrad with every array checked takes some five processor seconds, most of what a mutant
costs whose test fails at once. jax must not compute anything before a fork, because the threads of its
backend do not come along: the few arrays that the package makes while it is imported are put off.
"""

import gc
import importlib
import inspect
import pkgutil
import sys
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import xla_bridge
from jaxtyping import install_import_hook

PACKAGE, CHECKER = "quietgrad", "beartype.beartype"
# It computes while it is imported.
LEFT_OUT = ("blackjax", "__main__")
# Flag of the code of a function, and not of the body of a class.
CO_OPTIMIZED = inspect.CO_OPTIMIZED


class _Late(np.ndarray):
    """What is made in place of a jax array until there may be one."""


_asarray = jnp.asarray
# (placeholder, what it was made of); None once arrays may be made.
_late: list[tuple[_Late, Any]] | None = None


def _put_off(a: Any, *more: Any, **named: Any) -> Any:
    if _late is None:
        return _asarray(a, *more, **named)
    placeholder = np.asarray(a).view(_Late)
    _late.append((placeholder, a))
    return placeholder


def preload(root: Path) -> None:
    """Import the package of a copy of the project, with its annotations checked as in the tests."""
    global _late
    assert PACKAGE not in sys.modules
    # As in tests/conftest.py: only the first calls of each function are checked in a test.
    sys.path.insert(0, str(root / "tests"))
    importlib.import_module("sparing_checks").install()
    _late, jnp.asarray = [], _put_off
    install_import_hook(PACKAGE, CHECKER)
    package = importlib.import_module(PACKAGE)
    assert Path(str(package.__file__)).is_relative_to(root)
    for found in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."):
        if not any(name in found.name for name in LEFT_OUT):
            try:
                importlib.import_module(found.name)
            except ImportError:  # an extra that is not installed
                pass
    jnp.asarray = _asarray
    assert not xla_bridge._backends, "jax has computed something before the fork"


def revive() -> None:
    """In the fork, when jax may compute: make the arrays that were put off."""
    global _late
    late, _late = _late or (), None
    for placeholder, made_of in late:
        with jax.enable_x64(new_val=False):  # as it is when the tests import the package
            array = _asarray(made_of)
        for holder in gc.get_referrers(placeholder):
            for name, value in list(getattr(holder, "__dict__", {}).items()):
                if value is placeholder:
                    object.__setattr__(holder, name, array)


def replace_code(path: Path, old: str, new: str) -> bool:
    """Give all functions of a file the code of its new text.

    False if that is not enough: another module body, class body or closure. A module that is not
    imported needs nothing.
    """
    module = next((m for m in list(sys.modules.values()) if _file(m) == str(path)), None)
    if module is None:
        return True
    loader = module.__spec__.loader  # pyright: ignore[reportOptionalMemberAccess]
    before, after = (loader.source_to_code(t.encode(), str(path)) for t in (old, new))  # pyright: ignore
    changed = _Changed({}, set())
    if not _compare(before, after, changed):
        return False
    gc.unfreeze()
    replaced = set()
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename == str(path):
            key = _key(each.__code__)
            if key in changed.codes:
                each.__code__ = changed.codes[key]
                replaced.add(key)
    return bool(changed.needed) and changed.needed <= replaced


class _Changed(NamedTuple):
    """New code by what the old one is known by, and which of them must be that of a living function."""

    codes: dict[tuple[str, int], CodeType]
    needed: set[tuple[str, int]]


def _file(module: ModuleType) -> str | None:
    name = getattr(module, "__name__", "")
    return getattr(module, "__file__", None) if name.partition(".")[0] == PACKAGE else None


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _compare(before: CodeType, after: CodeType, changed: _Changed, *, outside: bool = True) -> bool:
    """Collect functions whose code differs, themselves or within.

    False if bodies of modules and classes do not agree, or functions of theirs cannot be told apart.
    """
    inside, also = _within(before), _within(after)
    keys = [_key(code) for code in inside]
    if [c.co_qualname for c in inside] != [c.co_qualname for c in also]:
        return False
    for key, one, other in zip(keys, inside, also, strict=True):
        if _same(one, other):
            continue
        is_function = bool(one.co_flags & CO_OPTIMIZED)
        if is_function and outside:
            if one.co_freevars != other.co_freevars or keys.count(key) > 1:
                return False
            changed.needed.add(key)
        if is_function and one.co_freevars == other.co_freevars and keys.count(key) == 1:
            changed.codes[key] = other
        if not _compare(one, other, changed, outside=outside and not is_function):
            return False
    return not outside or _bare(before) == _bare(after)


def _within(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _same(one: CodeType, other: CodeType) -> bool:
    """But for the numbers of their lines."""
    inside, also = _within(one), _within(other)
    return _bare(one) == _bare(other) and len(inside) == len(also) and all(map(_same, inside, also))


def _bare(code: CodeType) -> tuple[Any, ...]:
    """A body without the functions in it. Numbers are told apart by type and sign of zero: by `repr`."""
    plain = tuple(repr(each) for each in code.co_consts if not isinstance(each, CodeType))
    return code.co_name, code.co_code, plain, code.co_names, code.co_varnames, code.co_freevars
