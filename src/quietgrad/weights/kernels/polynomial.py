"""Zero-variance control variates (Assaraf & Caffarel 1999; Mira et al. 2013) through their Gram matrix.

Columns: the Langevin Stein operator, Laplacian + grad . grad log q_0, on monomials of e. With
s = grad log q_0(e):
  e_j -> s_j,    e_j^2 -> 2 + 2 e_j s_j,    e_i e_j -> e_j s_i + e_i s_j  (i < j).
For the normal base s = -e, and order 1 is the paper's -e_j.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...bases import AbstractBase, Normal
from .kernel import AbstractKernel


class Polynomial(AbstractKernel):
    """All monomials up to `order` (1 or 2), with the paper's scaling of the columns."""

    order: int = eqx.field(static=True, default=1)

    def __check_init__(self):
        """Only orders 1 and 2 have their Gram matrix worked out."""
        if self.order not in (1, 2):
            raise ValueError(f"order must be 1 or 2; got {self.order!r}")

    def refuses(self, base: AbstractBase) -> str | None:
        """A column grows like |e|^(order - 1), and its square must be integrable."""
        if base.moments > 2 * (self.order - 1):
            return None
        return (
            f"the tails of {type(base).__name__} are too heavy for Stein columns of order "
            f"{self.order}: moments up to {2 * (self.order - 1)} are needed and only those below "
            f"{base.moments:g} exist; use order=1 or a base with lighter tails"
        )

    def scale(self, dim: int, base: AbstractBase) -> float:
        """The number of columns, which have variances of the order of one."""
        del base
        return float(dim if self.order == 1 else dim + dim * (dim + 1) // 2)

    def gram(self, e: Float[Array, "draws base"], base: AbstractBase) -> Float[Array, "draws draws"]:
        """Closed form in L x L products; the columns themselves (d^2/2 of them) are never formed."""
        s = base.score(e)
        first = s @ s.T
        if self.order == 1:
            return first
        # Faster: for the normal base all three products are the same one up to sign.
        inner, cross = (first, -first) if isinstance(base, Normal) else (e @ e.T, s @ e.T)
        # 4 sum_j c_j c'_j for the squares, and for the pairs i < j half of what all i and j give, less
        # i = j: sum_{i<j} (e_j s_i + e_i s_j)(e'_j s'_i + e'_i s'_j) with e_j s_j = c_j - 1.
        c = 1 + e * s
        own = jnp.sum(c, axis=1)
        squares = 2 * (c @ c.T + own[:, None] + own[None, :] - e.shape[1])
        return first + squares + first * inner + cross * cross.T

    def columns(
        self, e: Float[Array, "draws base"], base: AbstractBase
    ) -> Float[Array, "draws columns"]:
        """The columns whose Gram matrix this is: the literal form, for small dimensions."""
        s = base.score(e)
        if self.order == 1:
            return s
        i, j = jnp.triu_indices(e.shape[1], 1)
        pairs = e[:, j] * s[:, i] + e[:, i] * s[:, j]
        return jnp.concatenate([s, 2 + 2 * e * s, pairs], axis=1)
