"""What to call a coordinate of a point when speaking to the user."""

import jax
import jax.numpy as jnp
import numpy as np

from .target import Target


def coordinate_name(target: Target, index: int) -> str:
    """Coordinate 3, or its place in the target's own points: coordinate weights[1, 0].

    Points are flattened leaf by leaf, so that shapes tell the place and nothing is compiled.
    """
    if target.unravel is None or target.dim is None:
        return f"coordinate {index}"
    flat = jax.ShapeDtypeStruct((target.dim,), jnp.zeros(()).dtype)
    first = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(jax.eval_shape(target.unravel, flat)):
        if index < first + leaf.size:
            place = np.unravel_index(index - first, leaf.shape)
            inside = f"[{', '.join(map(str, place))}]" if place else ""
            return f"coordinate {jax.tree_util.keystr(path, simple=True, separator='.')}{inside}"
        first += leaf.size
    return f"coordinate {index}"
