"""A symmetric matrix with a structure's zeros: the Hessian or the precision of a hierarchy, in O(n)."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import small_matrices as small
from .block_root import BlockRoot, Parts


class BlockMatrix(eqx.Module):
    """`corner` P_gg, `border` P_ig, `diagonal` P_ii, and `below` P_{i+1,i} in a chain, or None."""

    corner: Float[Array, "k k"]
    border: Float[Array, "b k n"]
    diagonal: Float[Array, "b b n"]
    below: Float[Array, "b b before"] | None = None

    def times(self, parts: Parts) -> Parts:
        """P v."""
        g, own = parts
        of_globals = self.corner @ g + jnp.sum(self.border * own[:, None, :], axis=(0, 2))
        of_blocks = jnp.sum(self.border * g[None, :, None], axis=1) + small.times(self.diagonal, own)
        if self.below is not None:
            below, above = (
                small.times(self.below, own[:, :-1]),
                small.transposed_times(self.below, own[:, 1:]),
            )
            of_blocks = of_blocks + small.after_first(below) + small.before_last(above)
        return of_globals, of_blocks

    def in_basis(self, basis: BlockRoot) -> "BlockMatrix":
        """B'PB for a root without transitions, which has the same zeros."""
        # P B, of which the columns of the globals are dense.
        corner = self.corner @ basis.corner + _over_blocks(self.border, basis.border)
        response = jnp.einsum("bkn,kj->bjn", self.border, basis.corner)
        response = response + small.product(self.diagonal, basis.border)
        if self.below is not None:
            below = small.product(self.below, basis.border[:, :, :-1])
            above = small.product(small.transpose(self.below), basis.border[:, :, 1:])
            response = response + small.after_first(below) + small.before_last(above)
        turned = small.transpose(basis.diagonal)
        below = self.below
        if below is not None:
            below = small.product(turned[:, :, 1:], small.product(below, basis.diagonal[:, :, :-1]))
        corner = basis.corner.T @ corner + _over_blocks(basis.border, response)
        return BlockMatrix(
            corner=0.5 * (corner + corner.T),
            border=small.product(turned, response),
            diagonal=small.product(turned, small.product(self.diagonal, basis.diagonal)),
            below=below,
        )


def _over_blocks(a: Float[Array, "b k n"], c: Float[Array, "b j n"]) -> Float[Array, "k j"]:
    """sum_i A_i'C_i."""
    return jnp.einsum("bkn,bjn->kj", a, c)
