"""Gaussians whose blocks of locals are independent given the globals: an arrowhead precision, in O(n).

  g = loc_g + G e_g,    z_i = loc_i + B_i e_g + L_i e_i,
with G and L_i lower triangular. Every Gaussian with that independence is one of these, once. It is the
full-rank family with the zeros that the posterior of a hierarchy has, if its locals are independent
given its globals: the best full-rank Gaussian for such a target has them too.
"""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from ..._util.checks import whole
from ..._util.compiling import program
from ...structure import BlockRoot, Structure
from ...targets import Target
from ..bases import AbstractBase, Normal
from ..family import AbstractFamily, HasPathMetric
from ..mean_field import MeanField
from .found import structure_for
from .gaussian import AbstractStructured, checked
from .triangles import from_log_diagonal, pack, triangle_size, unpack


class Arrowhead(AbstractStructured, HasPathMetric):
    """Gaussian of a hierarchy: groups depend on each other through the globals only.

    Location `loc`; `corner` and `local` are G and L_i, packed, and `border` is B_i.

    k(k+1)/2 + n (b(b+1)/2 + bk) numbers beside the location. Transport, density, score and entropy take
    O(n) operations.
    """

    loc: Float[Array, " dim"]
    corner: Float[Array, " corner"]
    border: Float[Array, "b k n"]
    local: Float[Array, "triangle n"]
    structure: Structure
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField,)

    @classmethod
    def init(
        cls,
        dim: int,
        *,
        key: Key[Array, ""],
        structure: Structure | None = None,
        spread: float = 0.5,
        base: AbstractBase = Normal(),
    ) -> "Arrowhead":
        """loc and log diagonals ~ N(0, spread^2) as in the mean-field start; no correlation.

        Without a structure, the first coordinate is the global one and each other one is a block.
        """
        structure = checked(structure, whole(dim, "dim", least=1), Structure.leading(dim))
        loc, log_std = spread * jr.normal(key, (2, structure.dim))
        return cls._diagonal(loc, log_std, structure, base)

    @classmethod
    def for_target(cls, target: Target, *, key: Key[Array, ""]) -> "Arrowhead":
        """The start for a target, whose structure is found."""
        structure = structure_for(target, "arrowhead")
        return program(cls.init)(structure.dim, key=key, structure=structure)

    @classmethod
    def _diagonal(
        cls,
        loc: Float[Array, " dim"],
        log_std: Float[Array, " dim"],
        structure: Structure,
        base: AbstractBase,
    ) -> "Arrowhead":
        corner, local = structure.split(log_std)
        return cls(
            loc=loc,
            corner=from_log_diagonal(corner),
            border=jnp.zeros((structure.b, structure.k, structure.n), loc.dtype),
            local=from_log_diagonal(local),
            structure=structure,
            base=base,
        )

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "Arrowhead":
        """The mean-field member itself."""
        del key
        assert isinstance(other, MeanField)
        return type(self)._diagonal(other.loc, other.log_std, self.structure, self.base)

    def root(self) -> BlockRoot:
        """G, B_i and L_i."""
        corner, local = unpack(self.corner, self.structure.k), unpack(self.local, self.structure.b)
        return BlockRoot(corner, self.border, local)

    def with_root(self, loc: Float[Array, " dim"], root: BlockRoot) -> "Arrowhead":
        """The member with this location and root."""
        return type(self)(
            loc=loc,
            corner=pack(root.corner),
            border=root.border,
            local=pack(root.diagonal),
            structure=self.structure,
            base=self.base,
        )

    def basis(self) -> BlockRoot:
        """The root itself: products of such roots have the same zeros."""
        return self.root()

    def path_metrics(self, e: Float[Array, " base"]) -> dict[str, Float[Array, " dim"]]:
        """1; sums of squared draws to the left in a triangle, and (L_jj e_j)^2; |e_g|^2 for B."""
        first, own = self.structure.split(e)
        no_globals, no_locals = jnp.zeros_like(first), jnp.zeros_like(own)
        corner = _triangle_metric(self.corner[: self.structure.k], first)
        local = _triangle_metric(self.local[: self.structure.b], own)
        border = jnp.full_like(own, jnp.sum(first**2))
        return {
            "loc": jnp.ones_like(e),
            "corner": self.structure.join(corner, no_locals),
            "border": self.structure.join(no_globals, border),
            "local": self.structure.join(no_globals, local),
        }

    def scale_gradient(
        self, e: Float[Array, "draws base"], slope: Float[Array, "draws dim"]
    ) -> Float[Array, " scales"]:
        """Those entries of E[(R'g - s) e'] that R has, s the base's score; the diagonal's by sqrt(2)."""
        pulled = jax.vmap(self.whitened)(slope) / math.sqrt(self.base.variance) - self.base.score(e)
        first, own = jax.vmap(self.structure.split)(e)
        of_globals, of_blocks = jax.vmap(self.structure.split)(pulled)
        count = e.shape[0]
        corner = jnp.einsum("di,dj->ij", of_globals, first) / count
        border = jnp.einsum("dbn,dk->bkn", of_blocks, first) / count
        local = jnp.einsum("dbn,dcn->bcn", of_blocks, own) / count
        return jnp.concatenate([triangle_gradient(corner), border.ravel(), triangle_gradient(local)])


def triangle_gradient(moved: Float[Array, "side side *n"]) -> Float[Array, " entries"]:
    """The lower triangles in a row, their diagonals by sqrt(2): the log of a scale has information 2."""
    rows, columns = np.tril_indices(moved.shape[0])
    weight = np.where(rows == columns, math.sqrt(0.5), 1.0).astype(moved.dtype)
    kept = moved[rows, columns].reshape(triangle_size(moved.shape[0]), -1)
    return (jnp.asarray(weight)[:, None] * kept).ravel()


def _triangle_metric(
    log_diagonal: Float[Array, "side *n"], e: Float[Array, "side *n"]
) -> Float[Array, "side *n"]:
    """The diagonal of J J' for the packed triangle that multiplies e."""
    return jnp.cumsum(e**2, axis=0) - e**2 + (jnp.exp(log_diagonal) * e) ** 2
