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
        number = np.arange(n)
        diagonal = jnp.moveaxis(own[number % colours, :, :, number], 0, -1)
        # Row block i + 1 of the columns that block i has its ones in.
        first, second = number[:-1], number[1:]
        found = own[first % colours, :, :, second]
        # The same entries as column block i + 1 sees them in row block i.
        mirrored = own[second % colours, :, :, first]
        below = 0.5 * (jnp.moveaxis(found, 0, -1).swapaxes(0, 1) + jnp.moveaxis(mirrored, 0, -1))
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
