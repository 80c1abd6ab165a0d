"""Block elimination: the root of the inverse of a structured matrix, and solutions with it, in O(n).

Blocks are eliminated from the last one on. What is left of block i when all after it are gone,
  D_i = P_ii - P_{i+1,i}' D_{i+1}^-1 P_{i+1,i},    R_i = P_ig - P_{i+1,i}' D_{i+1}^-1 R_{i+1},
is its precision given the block before and the globals, of which S = P_gg - sum R_i' D_i^-1 R_i is left.
In an arrowhead D_i = P_ii and R_i = P_ig. The Gaussian with precision P is therefore
  g = G e_g,    x_i = -D_i^-1 (P_{i,i-1} x_{i-1} + R_i g) + L_i e_i,    GG' = S^-1,    L_i L_i' = D_i^-1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import small_matrices as small
from .block_matrix import BlockMatrix
from .block_root import BlockRoot, Parts


class Eliminated(NamedTuple):
    """The root of P^-1, and whether P had to be changed to be positive definite."""

    root: BlockRoot
    clipped: Float[Array, ""]


def root_of_inverse(matrix: BlockMatrix, least: float | None = None) -> Eliminated:
    """R with RR' = P^-1. O(n); a chain takes n steps one after the other.

    With `least`, eigenvalues of what is left of each block and of the globals take their absolute
    values, and none is below it: for curvature away from a peak, in coordinates in which one is large.
    `clipped` is the largest such change. Without `least` a matrix that is not positive definite gives
    NaN.
    """
    if matrix.below is None:
        left, changes = _positive(matrix.diagonal, least)
        rest = matrix.border
    else:
        left, rest, changes = _backwards(matrix, least)
    own = small.root_of_inverse(left)
    # L_i'R_i, so that R_i'D_i^-1 R_i is its square and positive to rounding.
    turned = small.product(small.transpose(own), rest)
    schur = matrix.corner - jnp.einsum("bkn,bjn->kj", turned, turned)
    schur, change = _positive(0.5 * (schur + schur.T)[:, :, None], least)
    corner = small.root_of_inverse(schur)[:, :, 0]
    following = jnp.einsum("bkn,kj->bjn", turned, corner)
    transition = None
    if matrix.below is not None:
        back = small.product(small.transpose(own[:, :, 1:]), matrix.below)
        transition = -small.product(own[:, :, 1:], back)
    root = BlockRoot(corner, -small.product(own, following), own, transition)
    return Eliminated(root, jnp.maximum(changes, change))


def solve(matrix: BlockMatrix, right: Parts) -> Parts:
    """P^-1 v for a positive definite P."""
    root = root_of_inverse(matrix).root
    return root.times(root.transposed_times(right))


def _backwards(
    matrix: BlockMatrix, least: float | None
) -> tuple[Float[Array, "b b n"], Float[Array, "b k n"], Float[Array, ""]]:
    """D_i and R_i of a chain, from the last block on, and the largest change."""
    assert matrix.below is not None
    b, k, n = matrix.border.shape
    # The last block is followed by nothing: no tie, and a unit matrix that it does not meet.
    ties = jnp.concatenate([matrix.below, jnp.zeros((b, b, min(1, n)), matrix.below.dtype)], axis=-1)
    time_first = (
        jnp.moveaxis(matrix.diagonal, -1, 0),
        jnp.moveaxis(matrix.border, -1, 0),
        jnp.moveaxis(ties, -1, 0),
    )

    def step(
        after: tuple[Array, Array], block: tuple[Array, Array, Array]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
        (root, rest), (diagonal, border, tie) = after, block
        # L'P_{i+1,i} and L'R_{i+1} with LL' = D_{i+1}^-1.
        turned = small.product(small.transpose(root), tie[:, :, None])
        follow = small.product(small.transpose(root), rest)
        left = diagonal[:, :, None] - small.product(small.transpose(turned), turned)
        border_left = border[:, :, None] - small.product(small.transpose(turned), follow)
        left, change = _positive(left, least)
        found = left[:, :, 0], border_left[:, :, 0], change
        return (small.root_of_inverse(left), border_left), found

    start = small.identity(b, 1, matrix.diagonal), jnp.zeros((b, k, 1), matrix.border.dtype)
    _, (left, rest, changes) = jax.lax.scan(step, start, time_first, reverse=True)
    return jnp.moveaxis(left, 0, -1), jnp.moveaxis(rest, 0, -1), jnp.max(changes, initial=0.0)


def _positive(
    matrices: Float[Array, "b b n"], least: float | None
) -> tuple[Float[Array, "b b n"], Float[Array, ""]]:
    """The matrices made positive definite, and the largest change of an entry."""
    if least is None:
        return matrices, jnp.zeros((), matrices.dtype)
    made = small.make_positive(matrices, least)
    return made, jnp.max(jnp.abs(made - matrices), initial=0.0)
