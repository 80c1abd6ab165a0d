"""Checks of what a caller hands in, with messages that say what to do next."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def lookup(
    registry: Mapping[str, T], name: Any, kind: str, advice: Mapping[str, str] | None = None
) -> T:
    """Return `registry[name]`, or raise a `ValueError` that lists the known names."""
    if isinstance(name, str) and name in registry:
        return registry[name]
    raise ValueError(unknown(kind, name, registry, advice))


def unknown(kind: str, given: Any, known: Iterable[str], advice: Mapping[str, str] | None = None) -> str:
    """Say that `given` is not one of the `known` names, and which one is closest.

    `advice` has sentences for names that are used elsewhere, by their `letters`.
    """
    names, spelled = sorted(known), letters(str(given))
    hint = (advice or {}).get(spelled, "")
    if not hint:
        alike = [name for name in names if letters(name) == spelled]
        close = alike or difflib.get_close_matches(str(given), names, n=1)
        hint = f"Did you mean {close[0]!r}?" if close else ""
    return f"unknown {kind} {given!r}; known: {', '.join(names)}. {hint}".rstrip()


def letters(name: str) -> str:
    """The letters and digits of a name in lower case: "Mean_Field" and "mean-field" are alike."""
    return "".join(c for c in name.lower() if c.isalnum())


def part(
    given: Any,
    registry: Mapping[str, Any],
    cls: type[T],
    kind: str,
    advice: Mapping[str, str] | None = None,
) -> T:
    """Turn a registered name into its default instance; pass instances of `cls` through."""
    made = lookup(registry, given, kind, advice)() if isinstance(given, str) else given
    if not isinstance(made, cls):
        raise TypeError(
            f"{kind} must be one of the names {', '.join(sorted(registry))} or an instance of "
            f"{cls.__name__}; got {described(given)}"
        )
    return made


def instance(given: Any, cls: type, name: str) -> None:
    """Raise a `TypeError` unless `given` is an instance of `cls`."""
    if not isinstance(given, cls):
        raise TypeError(f"{name} must be an instance of {cls.__name__}; got {described(given)}")


def described(given: Any) -> str:
    """What `given` is, for a message."""
    if isinstance(given, type):
        return f"the class {given.__name__} itself"
    return type(given).__name__


def whole(value: Any, name: str, *, least: int) -> int:
    """Return `value` as an int that is at least `least`, or raise a `ValueError`."""
    try:
        number = int(value)
        exact = not isinstance(value, bool) and number == value
    except (TypeError, ValueError, OverflowError):
        number, exact = 0, False
    if not exact or number < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return number


def check_key(key: Any) -> None:
    """Raise a `TypeError` unless `key` is a jax random key."""
    import jax
    import jax.numpy as jnp

    good = isinstance(key, jax.Array) and (
        jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.dtype == jnp.uint32
    )
    if not good:
        raise TypeError(f"key must be a jax.random.key(seed); got {type(key).__name__}")
