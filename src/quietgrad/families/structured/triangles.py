"""Lower triangular matrices as free parameters: logs of the diagonal first, then what is below it."""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int


def triangle_size(side: int) -> int:
    """Free numbers of a triangle."""
    return side * (side + 1) // 2


def unpack(packed: Float[Array, "triangle *n"], side: int) -> Float[Array, "side side *n"]:
    """The matrices, whose diagonals are positive."""
    zero = jnp.zeros((1, *packed.shape[1:]), packed.dtype)
    values = jnp.concatenate([jnp.exp(packed[:side]), packed[side:], zero])
    return values[_places(side)]


def pack(matrices: Float[Array, "side side *n"]) -> Float[Array, "triangle *n"]:
    """The inverse of `unpack`."""
    side = matrices.shape[0]
    own, (rows, columns) = np.arange(side), np.tril_indices(side, -1)
    return jnp.concatenate([jnp.log(matrices[own, own]), matrices[rows, columns]])


def from_log_diagonal(log_diagonal: Float[Array, "side *n"]) -> Float[Array, "triangle *n"]:
    """The packed form of diagonal matrices."""
    side = log_diagonal.shape[0]
    below = jnp.zeros((triangle_size(side) - side, *log_diagonal.shape[1:]), log_diagonal.dtype)
    return jnp.concatenate([log_diagonal, below])


@functools.lru_cache(maxsize=32)
def _places(side: int) -> Int[np.ndarray, "side side"]:
    """Where each entry is packed; zeros are at the end. A gather of rows, where a scatter is slow."""
    # Of 32 bits: indices of 64 do not go with arrays of single precision.
    places = np.full((side, side), triangle_size(side), np.int32)
    places[np.tril_indices(side, -1)] = np.arange(side, triangle_size(side))
    places[np.arange(side), np.arange(side)] = np.arange(side)
    return places
