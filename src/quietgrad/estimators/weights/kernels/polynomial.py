"""Zero-variance control variates (Assaraf & Caffarel 1999; Mira et al. 2013) through their Gram matrix.

Columns: the Langevin Stein operator, Laplacian + grad . grad log p, on monomials of x. With
s = grad log p(x):
  x_j -> s_j,    x_j^2 -> 2 + 2 x_j s_j,    x_i x_j -> x_j s_i + x_i s_j  (i < j).
For base draws p = q_0; for the normal base s = -e, and order 1 is the paper's -e_j.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ....families.bases import AbstractBase, Normal
from .kernel import AbstractKernel, HasColumns


class Polynomial(AbstractKernel, HasColumns):
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

    def column_count(self, dim: int) -> int:
        """d, and d (d + 1)/2 more for order 2."""
        return dim if self.order == 1 else dim + dim * (dim + 1) // 2

    def scale(self, dim: int, base: AbstractBase) -> float:
        """The number of columns, which have variances of the order of one."""
        del base
        return float(self.column_count(dim))

    def gram(
        self, points: Float[Array, "draws dim"], scores: Float[Array, "draws dim"]
    ) -> Float[Array, "draws draws"]:
        """Closed form in L x L products; the columns themselves (d^2/2 of them) are never formed."""
        first = scores @ scores.T
        if self.order == 1:
            return first
        return _second(points, scores, first, inner=points @ points.T, cross=scores @ points.T)

    def gram_of_base(
        self, e: Float[Array, "draws base"], base: AbstractBase
    ) -> Float[Array, "draws draws"]:
        """The same; for the normal base all three products are the same one up to sign."""
        if self.order == 1 or not isinstance(base, Normal):
            return self.gram(e, base.score(e))
        first = e @ e.T
        return _second(e, -e, first, inner=first, cross=-first)

    def columns(
        self, points: Float[Array, "draws dim"], scores: Float[Array, "draws dim"]
    ) -> Float[Array, "draws columns"]:
        """The columns whose Gram matrix this is, in the order of the module's docstring."""
        if self.order == 1:
            return scores
        i, j = jnp.triu_indices(points.shape[1], 1)
        pairs = points[:, j] * scores[:, i] + points[:, i] * scores[:, j]
        return jnp.concatenate([scores, 2 + 2 * points * scores, pairs], axis=1)


def _second(
    points: Float[Array, "draws dim"],
    scores: Float[Array, "draws dim"],
    first: Float[Array, "draws draws"],
    *,
    inner: Float[Array, "draws draws"],
    cross: Float[Array, "draws draws"],
) -> Float[Array, "draws draws"]:
    # 4 sum_j c_j c'_j for the squares, and for the pairs i < j half of what all i and j give, less
    # i = j: sum_{i<j} (x_j s_i + x_i s_j)(x'_j s'_i + x'_i s'_j) with x_j s_j = c_j - 1.
    c = 1 + points * scores
    own = jnp.sum(c, axis=1)
    squares = 2 * (c @ c.T + own[:, None] + own[None, :] - points.shape[1])
    return first + squares + first * inner + cross * cross.T
