"""A target's data: arrays with a common leading axis, checked and put on the device."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .row_blocks import AbstractRows


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
    # NumPy's arrays are copied at once, on the host: jax may share their memory, or copy them a little
    # later, and they may be changed in place.
    return jax.tree.map(lambda x: x if isinstance(x, jax.Array) else jnp.asarray(np.array(x)), data)


def data_like(known: PyTree[Array], data: PyTree) -> PyTree[Array]:
    """`as_data`, for data whose rows must be like those that are known."""
    new = as_data(data)
    here, there = (jax.tree.map(lambda x: (x.shape[1:], x.dtype), d) for d in (known, new))
    if jax.tree.structure(known) != jax.tree.structure(new) or here != there:
        raise ValueError(f"data must be like that of the target, with rows of {here}; got {there}")
    return new


def rows_of(data: PyTree[Array] | AbstractRows) -> int:
    """The length of the common leading axis; 0 without data."""
    if isinstance(data, AbstractRows):
        return data.rows
    leaves = jax.tree.leaves(data)
    return leaves[0].shape[0] if leaves else 0
