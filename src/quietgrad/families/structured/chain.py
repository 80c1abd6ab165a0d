"""Gaussians of a state space: each block follows the one before and the globals, in O(n).

  g = loc_g + G e_g,    z_t = loc_t + A_t (z_{t-1} - loc_{t-1}) + B_t e_g + L_t e_t.
The precision is block tridiagonal, with a border for the globals, and every Gaussian with such a
precision is one of these. It is the best full-rank Gaussian for a target whose blocks meet only their
neighbours and the globals.
"""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..._util.checks import whole
from ..._util.compiling import program
from ...structure import BlockRoot, Structure
from ...structure import small_matrices as small
from ...targets import Target
from ..bases import AbstractBase, Normal
from ..family import AbstractFamily
from ..mean_field import MeanField
from .arrowhead import triangle_gradient
from .found import structure_for
from .gaussian import AbstractStructured, checked
from .triangles import from_log_diagonal, pack, unpack


class Chain(AbstractStructured):
    """Gaussian of a time series: each step depends on the one before it and on the globals.

    Location `loc`; `corner` and `local` are G and L_t, packed; `border` B_t; `transition` A_t.

    n (b(b+1)/2 + b^2 + bk) numbers beside those of the globals and the location. A draw is carried along
    the chain by an associative scan: O(n b^3) operations in O(log n) steps. Densities and scores need no
    scan.
    """

    loc: Float[Array, " dim"]
    corner: Float[Array, " corner"]
    border: Float[Array, "b k n"]
    local: Float[Array, "triangle n"]
    transition: Float[Array, "b b before"]
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
    ) -> "Chain":
        """loc and log diagonals ~ N(0, spread^2) as in the mean-field start; no correlation.

        Without a structure, all coordinates are one chain in their order, without globals.
        """
        default = Structure.leading(dim, globals=0, kind="chain")
        structure = checked(structure, whole(dim, "dim", least=1), default)
        loc, log_std = spread * jr.normal(key, (2, structure.dim))
        return cls._diagonal(loc, log_std, structure, base)

    @classmethod
    def for_target(cls, target: Target, *, key: Key[Array, ""]) -> "Chain":
        """The start for a target, whose structure is found."""
        structure = structure_for(target, "chain")
        return program(cls.init)(structure.dim, key=key, structure=structure)

    @classmethod
    def _diagonal(
        cls,
        loc: Float[Array, " dim"],
        log_std: Float[Array, " dim"],
        structure: Structure,
        base: AbstractBase,
    ) -> "Chain":
        (corner, local), (k, b, n) = structure.split(log_std), (structure.k, structure.b, structure.n)
        return cls(
            loc=loc,
            corner=from_log_diagonal(corner),
            border=jnp.zeros((b, k, n), loc.dtype),
            local=from_log_diagonal(local),
            transition=jnp.zeros((b, b, max(n - 1, 0)), loc.dtype),
            structure=structure,
            base=base,
        )

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "Chain":
        """The mean-field member itself."""
        del key
        assert isinstance(other, MeanField)
        return type(self)._diagonal(other.loc, other.log_std, self.structure, self.base)

    def root(self) -> BlockRoot:
        """G, B_t, L_t and A_t."""
        corner, local = unpack(self.corner, self.structure.k), unpack(self.local, self.structure.b)
        return BlockRoot(corner, self.border, local, self.transition)

    def with_root(self, loc: Float[Array, " dim"], root: BlockRoot) -> "Chain":
        """The member with this location and root."""
        assert root.transition is not None
        return type(self)(
            loc=loc,
            corner=pack(root.corner),
            border=root.border,
            local=pack(root.diagonal),
            transition=root.transition,
            structure=self.structure,
            base=self.base,
        )

    def basis(self) -> BlockRoot:
        """The globals' root, the whole response to them, and each block's scale given the one before."""
        root = self.root()
        return BlockRoot(root.corner, root.responses(), root.diagonal)

    def scale_gradient(
        self, e: Float[Array, "draws base"], slope: Float[Array, "draws dim"]
    ) -> Float[Array, " scales"]:
        """Block by block, a regression on e_g and on the block before: E[(R'g - s)_t u_t'].

        u_t has e_g and what is left of z_{t-1} given e_g, at unit covariance; L_t's part is as in an
        arrowhead. Residuals of different blocks are independent under q, so the metric is the identity.
        """
        root, count = self.root(), e.shape[0]
        unit = math.sqrt(self.base.variance)
        pulled = jax.vmap(self.whitened)(slope) / unit - self.base.score(e)
        first, own = jax.vmap(self.structure.split)(e)
        of_globals, of_blocks = jax.vmap(self.structure.split)(pulled)
        corner = jnp.einsum("di,dj->ij", of_globals, first) / count
        border = jnp.einsum("dbn,dk->bkn", of_blocks, first) / count
        local = jnp.einsum("dbn,dcn->bcn", of_blocks, own) / count
        # What is left of each block given e_g: the recursion without the border.
        alone = BlockRoot(root.corner, jnp.zeros_like(root.border), root.diagonal, root.transition)
        left = jax.vmap(lambda e, own: alone.times((e, own))[1])(first, own)
        spread = small.cholesky(root.spreads())
        before = jax.vmap(lambda x: small.solve_vectors(spread, x))(left)[:, :, :-1]
        transition = jnp.einsum("dbn,dcn->bcn", of_blocks[:, :, 1:], before) / count
        own_parts = triangle_gradient(corner), border.ravel(), triangle_gradient(local)
        return jnp.concatenate([*own_parts, transition.ravel()])
