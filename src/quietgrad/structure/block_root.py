"""The root R of a structured covariance RR': block lower triangular, applied in O(n).

  R e = (G e_g, x_1, ..., x_n)  with  x_i = A_i x_{i-1} + B_i e_g + L_i e_i,
G and L_i lower triangular, and transitions A_i only in a chain. Without them, R has as many numbers as
it has entries. R^-1 is sparse for both kinds, so densities and scores take no scan.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from . import small_matrices as small

# The part of a vector that belongs to the globals, and that of the blocks.
Parts = tuple[Float[Array, " k"], Float[Array, "b n"]]


class BlockRoot(eqx.Module):
    """`corner` G, `border` B, `diagonal` L and `transition` A from the second block on, or None."""

    corner: Float[Array, "k k"]
    border: Float[Array, "b k n"]
    diagonal: Float[Array, "b b n"]
    transition: Float[Array, "b b before"] | None = None

    def times(self, parts: Parts) -> Parts:
        """R e: O(n) numbers and operations; a chain takes n steps one after the other."""
        e, own = parts
        moves = _sum_of_columns(self.border, e) + small.times(self.diagonal, own)
        return self.corner @ e, self._carried(moves[:, None, :])[:, 0, :]

    def transposed_times(self, parts: Parts) -> Parts:
        """R'v."""
        g, own = parts
        pulled = own if self.transition is None else carried_back(self.transition, own)
        to_globals = jnp.sum(self.border * pulled[:, None, :], axis=(0, 2))
        return self.corner.T @ g + to_globals, small.transposed_times(self.diagonal, pulled)

    def solve(self, parts: Parts) -> Parts:
        """R^-1 x."""
        g, own = parts
        e = solve_triangular(self.corner, g, lower=True) if g.size else g
        moves = own - _sum_of_columns(self.border, e)
        if self.transition is not None:
            moves = moves - small.after_first(small.times(self.transition, own[:, :-1]))
        return e, small.solve_vectors(self.diagonal, moves)

    def transposed_solve(self, parts: Parts) -> Parts:
        """R^-T v."""
        g, own = parts
        moves = small.solve_vectors(self.diagonal, own, transposed=True)
        e = g - jnp.sum(self.border * moves[:, None, :], axis=(0, 2))
        e = solve_triangular(self.corner, e, lower=True, trans="T") if g.size else e
        if self.transition is not None:
            tied = small.transposed_times(self.transition, moves[:, 1:])
            moves = moves - small.before_last(tied)
        return e, moves

    def log_det(self) -> Float[Array, ""]:
        """log det R."""
        own = jnp.diagonal(self.diagonal)
        return jnp.sum(jnp.log(jnp.diagonal(self.corner))) + jnp.sum(jnp.log(own))

    def responses(self) -> Float[Array, "b k n"]:
        """How much each block follows e_g, through the blocks before it too."""
        return self._carried(self.border)

    def spreads(self) -> Float[Array, "b b n"]:
        """The covariance of each block given the globals."""
        own = small.product(self.diagonal, small.transpose(self.diagonal))
        if self.transition is None:
            return own

        def after(before: Array, block: tuple[Array, Array]) -> tuple[Array, Array]:
            a, v = block
            spread = v + a @ before @ a.T
            return spread, spread

        time_first = jnp.moveaxis(_from_first(self.transition), -1, 0), jnp.moveaxis(own, -1, 0)
        first = jnp.zeros(own.shape[:2], own.dtype)
        return jnp.moveaxis(jax.lax.scan(after, first, time_first)[1], 0, -1)

    def variances(self) -> Parts:
        """The diagonal of RR'."""
        own = jnp.diagonal(self.spreads()).T + jnp.sum(self.responses() ** 2, axis=1)
        return jnp.sum(self.corner**2, axis=1), own

    def _carried(self, moves: Float[Array, "b columns n"]) -> Float[Array, "b columns n"]:
        """x_i = A_i x_{i-1} + m_i."""
        return moves if self.transition is None else _recursion(self.transition, moves)


def carried_back(
    transition: Float[Array, "b b before"], own: Float[Array, "b n"]
) -> Float[Array, "b n"]:
    """y_i = v_i + A_{i+1}' y_{i+1}: the transpose of the recursion."""
    backwards = small.transpose(transition)[:, :, ::-1]
    return _recursion(backwards, own[:, None, ::-1])[:, 0, ::-1]


def _recursion(
    transition: Float[Array, "b b before"], moves: Float[Array, "b columns n"]
) -> Float[Array, "b columns n"]:
    """x_i = A_i x_{i-1} + m_i for all i, one after the other.

    An associative scan would take O(log n) steps, but it is written out: tens of seconds of compilation
    for a fit, where a loop over 1,000 blocks takes less than a millisecond.
    """

    def after(before: Array, block: tuple[Array, Array]) -> tuple[Array, Array]:
        a, move = block
        x = move + jnp.sum(a[:, :, None] * before[None, :, :], axis=1)
        return x, x

    time_first = jnp.moveaxis(_from_first(transition), -1, 0), jnp.moveaxis(moves, -1, 0)
    return jnp.moveaxis(jax.lax.scan(after, jnp.zeros_like(moves[:, :, 0]), time_first)[1], 0, -1)


def _from_first(transition: Float[Array, "b b before"]) -> Float[Array, "b b n"]:
    """Transitions of all blocks: the first one follows nothing."""
    b = transition.shape[0]
    return jnp.concatenate([jnp.zeros((b, b, 1), transition.dtype), transition], axis=-1)


def _sum_of_columns(border: Float[Array, "b k n"], e: Float[Array, " k"]) -> Float[Array, "b n"]:
    return jnp.sum(border * e[None, :, None], axis=1)
