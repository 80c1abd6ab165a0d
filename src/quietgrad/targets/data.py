"""Checks of a target's data, and of what its functions return."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .row_blocks import AbstractRows


def check_shape(
    name: str, fn: Any, z: jax.ShapeDtypeStruct, shape: tuple[int, ...], wanted: str
) -> None:
    """Raise unless a function of a point returns real numbers of this shape, `wanted` in words."""
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


def as_data(data: PyTree) -> PyTree[Array]:
    """The data as arrays on the device; raises where rows do not match or are not finite."""
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


def rows_of(data: PyTree[Array] | AbstractRows) -> int:
    """The length of the common leading axis; 0 without data."""
    if isinstance(data, AbstractRows):
        return data.rows
    leaves = jax.tree.leaves(data)
    return leaves[0].shape[0] if leaves else 0
