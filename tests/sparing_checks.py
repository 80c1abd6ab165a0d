"""Types are checked while the tests run: in every test, the first calls of each function.

An argument of the wrong type or shape is nearly always wrong at the first call. `jaxtyping` by itself
checks every call, and makes the checks of a function within a function each time that it is defined.
"""

import functools
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any

import jaxtyping
from jaxtyping import _decorator

# The first step from a state that was just made, one from a state that a step left, and one more.
CHECKED_CALLS = 3
# Calls of each function that are still to be checked in this test, if it was called.
_left: dict[CodeType, int] = {}
_check_every_call = jaxtyping.jaxtyped


def next_test() -> None:
    """From here on the first calls of each function are checked again."""
    _left.clear()


def sparing(fn: Any = None, *, typechecker: Any = None) -> Any:
    """`jaxtyping.jaxtyped`, which checks the first calls only and makes a check when it is needed."""
    if fn is None:
        return functools.partial(sparing, typechecker=typechecker)
    if not inspect.isfunction(fn):
        # A class or a property: its functions come back here.
        return _check_every_call(fn, typechecker=typechecker)
    # Without annotations there is nothing to check.
    return _first_calls(fn, typechecker) if fn.__annotations__ else fn


def _first_calls(fn: Callable, typechecker: Any) -> Callable:
    # Functions that one definition makes again and again are counted together.
    definition, checked = fn.__code__, None

    @functools.wraps(fn)
    def first_calls_checked(*args: Any, **kwargs: Any) -> Any:
        nonlocal checked
        if (left := _left.get(definition, CHECKED_CALLS)) == 0:
            return fn(*args, **kwargs)
        _left[definition] = left - 1
        if checked is None:
            checked = _check_every_call(fn, typechecker=typechecker)
        return checked(*args, **kwargs)

    return first_calls_checked


def install() -> None:
    """Have `--jaxtyping-packages` decorate the package with `sparing`."""
    # In both modules: the hook takes it from the first, and `jaxtyped` calls itself for a class.
    jaxtyping.jaxtyped = _decorator.jaxtyped = sparing
