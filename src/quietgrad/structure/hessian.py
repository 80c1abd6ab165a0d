"""The blocks of a structured Hessian from a few products, by colouring (Curtis, Powell & Reid 1974).

Coordinates that never meet in a row share a product. In an arrowhead these are the j-th coordinates of
all blocks: k + b products in all. In a chain a block meets its two neighbours, so every third block
shares one: k + 3b products, whatever n.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import small_matrices as small
from .block_matrix import BlockMatrix
from .block_root import BlockRoot, Parts
from .structure import Structure

COLOURS = 3

HessianProduct = Callable[[Float[Array, " dim"]], Float[Array, " dim"]]


def product_count(structure: Structure) -> int:
    """Products that `blocks_of_hessian` takes: k + b, or k + 3b for a chain."""
    return structure.k + structure.b * (COLOURS if structure.chained else 1)


def probes(
    structure: Structure, dtype: np.dtype, basis: BlockRoot | None = None
) -> Float[Array, "p dim"]:
    """Vectors whose products with a Hessian have all of its blocks; times a basis, if there is one."""
    k, b, n = structure.k, structure.b, structure.n
    colours = COLOURS if structure.chained else 1
    # Probe (c, j): one at the j-th coordinate of each block i with i = c modulo the colours.
    own = np.zeros((colours, b, b, n), dtype)
    for colour in range(colours):
        own[colour, np.arange(b), np.arange(b), colour::colours] = 1.0
    globals_first = np.concatenate([np.eye(k, dtype=dtype), np.zeros((colours * b, k), dtype)])
    of_blocks = np.concatenate([np.zeros((k, b, n), dtype), own.reshape(-1, b, n)])

    def point(parts: Parts) -> Float[Array, " dim"]:
        return structure.join(*(parts if basis is None else basis.times(parts)))

    return jax.vmap(point)((jnp.asarray(globals_first), jnp.asarray(of_blocks)))


def blocks_from_products(
    structure: Structure, products: Float[Array, "p dim"], basis: BlockRoot | None = None
) -> BlockMatrix:
    """The blocks of H, or of B'HB, from the products of H with `probes`."""

    def seen(product: Float[Array, " dim"]) -> Parts:
        parts = structure.split(product)
        return parts if basis is None else basis.transposed_times(parts)

    k, b, n = structure.k, structure.b, structure.n
    of_globals, of_blocks = jax.vmap(seen)(products)
    corner, border = of_globals[:k], jnp.moveaxis(of_blocks[:k], 0, 1)
    colours = COLOURS if structure.chained else 1
    # Axes: colour, column, row, block.
    own = of_blocks[k:].reshape(colours, b, b, n)
    diagonal, below = own[0], None
    if structure.chained:
        # Selected by masks: to index rows and blocks would scatter where this is differentiated.
        diagonal = _of_colour(own, structure, 0)
        # Row block i + 1 of the columns that block i has its ones in.
        found = _of_colour(own, structure, -1)[:, :, 1:].swapaxes(0, 1)
        # The same entries as column block i + 1 sees them in row block i.
        mirrored = _of_colour(own, structure, 1)[:, :, :-1]
        below = 0.5 * (found + mirrored)
    return BlockMatrix(
        corner=0.5 * (corner + corner.T),
        border=border,
        diagonal=0.5 * (diagonal + diagonal.swapaxes(0, 1)),
        below=below,
    )


def blocks_of_hessian(
    hvp: HessianProduct, structure: Structure, dtype: np.dtype, basis: BlockRoot | None = None
) -> BlockMatrix:
    """The blocks of a Hessian that has the structure's zeros, or of B'HB for a basis B.

    Takes `product_count(structure)` products. Exact, to rounding, if the zeros are there; what is not
    zero between the blocks is added to what is read in their place.
    """
    products = jax.vmap(hvp)(probes(structure, dtype, basis))
    return blocks_from_products(structure, products, basis)


def trace_probes(
    structure: Structure, own: Float[Array, "b b n"], below: Float[Array, "b b before"] | None
) -> Float[Array, "p b n"]:
    """Vectors w_p with <S, H> = sum_p w_p'H c_p for the columns c_p of `probes` without globals.

    S is symmetric with these blocks, and zero between others.
    """
    b, n = structure.b, structure.n
    if below is None:
        return own.swapaxes(0, 1)
    # Row block i of S has S_ii, S_i,i-1 and S_i,i+1, each for the columns of one colour.
    parts = {
        0: own,
        -1: small.after_first(below),
        1: small.before_last(small.transpose(below)),
    }
    found = sum(
        _mask(structure, shift, own.dtype)[:, None, None, :] * part.swapaxes(0, 1)[None]
        for shift, part in parts.items()
    )
    return jnp.reshape(found, (COLOURS * b, b, n))


def _of_colour(
    own: Float[Array, "colours b b n"], structure: Structure, shift: int
) -> Float[Array, "b b n"]:
    """What the columns of the colour of block i + `shift` have in row block i, as (column, row, i)."""
    mask = _mask(structure, shift, own.dtype)[:, None, None, :] > 0
    return jnp.sum(jnp.where(mask, own, 0.0), axis=0)


def _mask(structure: Structure, shift: int, dtype: np.dtype) -> Float[np.ndarray, "colours n"]:
    """One where block i + `shift` has the colour."""
    colour = (np.arange(structure.n) + shift) % COLOURS
    return (colour == np.arange(COLOURS)[:, None]).astype(dtype)
