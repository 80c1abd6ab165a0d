"""What to call a coordinate of a point when speaking to the user."""

import jax
import jax.numpy as jnp
import numpy as np

from .target import Target


def coordinate_name(target: Target, index: int) -> str:
    """Coordinate 3, or its place in the target's own points: coordinate weights[1, 0]."""
    if target.unravel is None or target.dim is None:
        return f"coordinate {index}"
    tree = target.unravel(jnp.arange(target.dim, dtype=jnp.zeros(()).dtype))
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        found = np.argwhere(np.asarray(leaf) == index)
        if found.shape[0]:
            inside = f"[{', '.join(map(str, found[0]))}]" if np.ndim(leaf) else ""
            return f"coordinate {jax.tree_util.keystr(path, simple=True, separator='.')}{inside}"
    return f"coordinate {index}"
