"""Whether a function has an argument more than a target's functions need: one for hyperparameters."""

import inspect
from collections.abc import Callable
from typing import Any

HYPERPARAMETERS_MISSING = (
    "log_prior or log_likelihood has an argument more than log_prior(z) and log_likelihood(z, data), "
    "and no default for it; if these are hyperparameters, give them as fit(..., hyperparameters=...)"
)


def takes_more(function: Callable[..., Any] | None, arguments: int) -> bool:
    """Whether a function needs one argument more than these, which no default provides."""
    try:
        signature = inspect.signature(function)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return False
    return not _binds(signature, arguments) and _binds(signature, arguments + 1)


def _binds(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True
