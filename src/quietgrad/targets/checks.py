"""What a user can get wrong in a target, found without computing anything."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

HYPERPARAMETERS_MISSING = (
    "log_prior or log_likelihood has an argument more than log_prior(z) and log_likelihood(z, data), "
    "and no default for it; if these are hyperparameters, give them as fit(..., hyperparameters=...)"
)


def check_shape(
    name: str, fn: Any, z: jax.ShapeDtypeStruct, shape: tuple[int, ...], wanted: str
) -> None:
    """Raise unless a function of a point returns a real array of this shape."""
    try:
        out = jax.eval_shape(fn, z)
    except Exception as error:
        raise ValueError(
            f"{name} failed on a point of dim {z.shape[0]}: {type(error).__name__}: {error}\n"
            f"Check the dim that was given, and that {name} is written in jax.numpy."
        ) from error
    if not hasattr(out, "shape") or out.shape != shape or not jnp.issubdtype(out.dtype, jnp.floating):
        got = f"{out.dtype}{list(out.shape)}" if hasattr(out, "shape") else type(out).__name__
        raise ValueError(
            f"{name} must return {wanted}; on a point of dim {z.shape[0]} it returned {got}"
        )


def checked_data(data: PyTree) -> PyTree[Array]:
    """The data as arrays of equally many rows, all of them finite."""
    leaves = jax.tree_util.tree_leaves_with_path(data)
    rows = {jax.tree_util.keystr(path) or "data": np.shape(x)[:1] for path, x in leaves}
    if len(set(rows.values())) > 1 or () in rows.values() or (0,) in rows.values():
        raise ValueError(f"every array in data needs the same, non-empty leading axis; got {rows}")
    for path, leaf in leaves:
        values = np.asarray(leaf)
        bad = ~np.isfinite(values) if np.issubdtype(values.dtype, np.floating) else np.zeros(1, bool)
        if bad.any():
            name = jax.tree_util.keystr(path) or "data"
            row = int(np.argwhere(bad)[0][0])
            raise ValueError(
                f"{name} has {int(bad.sum())} NaN or infinite values, the first in row {row}; "
                "remove or impute these rows"
            )
    return jax.tree.map(jnp.asarray, data)


def rows_of(data: PyTree[Array]) -> int:
    """How many rows there are; none without data."""
    leaves = jax.tree.leaves(data)
    return leaves[0].shape[0] if leaves else 0


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
