"""Checks of what a target is given: functions and data that belong together, and what they return."""

import inspect
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from .._util.checks import whole
from .._util.tracing import Traced, traced

HYPERPARAMETERS_MISSING = (
    "log_prior or log_likelihood has an argument more than log_prior(z) and log_likelihood(z, data), "
    "and no default for it; if these are hyperparameters, give them as fit(..., hyperparameters=...)"
)


def check_arguments(
    log_prior: Any, log_likelihood: Any, data: PyTree, dim: int | None, example: PyTree
) -> None:
    """Raise unless these make a target: functions, data with a likelihood, one form of points."""
    for name, fn in (("log_prior", log_prior), ("log_likelihood", log_likelihood)):
        if not callable(fn) and not (fn is None and name == "log_likelihood"):
            raise TypeError(f"{name} must be a function; got {type(fn).__name__}")
    if (log_likelihood is None) != (data is None):
        given, missing = ("data", "log_likelihood") if data is not None else ("log_likelihood", "data")
        raise ValueError(f"{given} was given without {missing}; give both, or neither")
    if dim is not None and example is not None:
        raise ValueError("give dim (points are vectors) or example (points are pytrees), not both")


def traced_function(
    name: str, fn: Callable[..., Any], args: tuple[PyTree, ...], dim: int, shape: tuple[int, ...]
) -> Traced:
    """The function as it is now; raises unless it returns real numbers of this shape."""
    try:
        found = traced(fn, *args)
    except Exception as error:
        raise ValueError(
            f"{name} failed on a point of dim {dim}: {type(error).__name__}: {error}\n"
            f"Check the dim that was given, and that {name} is written in jax.numpy."
        ) from error
    out = found.out
    if not hasattr(out, "shape") or out.shape != shape or not jnp.issubdtype(out.dtype, jnp.floating):
        wanted = f"one real value per row, shape {shape}" if shape else "a real scalar for one point"
        got = f"{out.dtype}{list(out.shape)}" if hasattr(out, "shape") else type(out).__name__
        raise ValueError(f"{name} must return {wanted}; on a point of dim {dim} it returned {got}")
    return found


def batch_size_within(rows: int, batch_size: int, no_rows: str = "") -> int:
    """`batch_size` as an int, or a `ValueError` unless it is between 1 and `rows`.

    `no_rows` says why there are none, where that is known.
    """
    batch_size = whole(batch_size, "batch_size", least=1)
    if rows == 0:
        reason = no_rows or "this target has no data to take batches of"
        raise ValueError(f"batch_size was given, but {reason}")
    if batch_size > rows:
        raise ValueError(
            f"batch_size is {batch_size} but there are only {rows} rows; "
            f"use at most {rows}, or leave it out for the full data"
        )
    return batch_size


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
