"""An order of rows without an array of them: a keyed permutation, worked out for the places asked for.

Rows are cells of a grid with a columns and b lines, ab >= N. In turn, each column number is shifted by a
hash of its line and each line number by a hash of its column: every such move is one to one, so all of
them together are (Feistel networks on domains of any size; Black & Rogaway 2002). A cell beyond the last
row is moved on until it is one that is not.
"""

import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Int, Key, UInt32

# Moves of columns and lines. With three, pairs of neighbours among few rows are uneven enough to see.
ROUNDS = 6
# Odd numbers with digits that look random (from the golden ratio and from xxHash), and shifts.
FIRST, SECOND, SHIFTS = np.uint32(0x9E3779B1), np.uint32(0x85EBCA77), (np.uint32(15), np.uint32(13))


def shuffled(places: Int[Array, " batch"], size: int, *, key: Key[Array, ""]) -> Int[Array, " batch"]:
    """The rows at these places of an order of `size` rows that depends on the key alone."""
    columns = math.isqrt(size - 1) + 1
    lines = -(-size // columns)
    words = jr.bits(key, (ROUNDS, 2), jnp.uint32)

    def moved(cell: UInt32[Array, " batch"]) -> UInt32[Array, " batch"]:
        column, line = cell % columns, cell // columns
        for word in words:
            column = (column + _hash(line, word[0])) % columns
            line = (line + _hash(column, word[1])) % lines
        return line * columns + column

    def outside(cell: UInt32[Array, " batch"]) -> Array:
        return jnp.any(cell >= size)

    def again(cell: UInt32[Array, " batch"]) -> UInt32[Array, " batch"]:
        return jnp.where(cell >= size, moved(cell), cell)

    found = jax.lax.while_loop(outside, again, moved(places.astype(jnp.uint32)))
    return found.astype(places.dtype)


def _hash(x: UInt32[Array, " batch"], word: UInt32[Array, ""]) -> UInt32[Array, " batch"]:
    """Digits of x and a key, mixed; the last ones are left out, so that sums do not overflow."""
    x = (x ^ word) * FIRST
    x = (x ^ (x >> SHIFTS[0])) * SECOND
    return (x ^ (x >> SHIFTS[1])) >> np.uint32(1)
