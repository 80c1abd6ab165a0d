"""A hierarchy drawn as it is: the globals first, from any family, then the locals given them.

  g = T(e_g),    z_i = m_i(g) + L_i(g) e_i.
No Gaussian can hold locals whose spread depends on a global scale; this family does, exactly where the
conditionals are Gaussian (`nested.py`). Centred models need not be rewritten for it.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ..._util.checks import whole
from ...structure import Structure
from ...targets import Target
from ..advice import Advice
from ..bases import AbstractBase, Normal
from ..capabilities import Invertible, ScalesFollow
from ..family import AbstractFamily
from ..full_rank import FullRank, pack_triangle
from ..mean_field import MeanField
from ..structured import AbstractStructured, Arrowhead, Chain
from ..structured.found import structure_for
from .linear import LinearLocals
from .locals import AbstractConditional
from .nested import NestedLaplace


class Hierarchical(AbstractFamily, ScalesFollow):
    """`of_globals` is q(g), `of_locals` is q(z | g). Base draws are in the order of the coordinates.

    Transport, density and score take O(n) operations, and with nested locals some gradients of the
    target: they hold it, and gradients leave it alone.
    """

    of_globals: AbstractFamily
    of_locals: AbstractConditional
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField, Arrowhead, Chain)

    @classmethod
    def init(
        cls,
        dim: int,
        *,
        key: Key[Array, ""],
        structure: Structure | None = None,
        spread: float = 0.5,
    ) -> "Hierarchical":
        """The mean-field start, with locals whose means and log scales can follow the globals linearly.

        Without a structure, the first coordinate is the global one and each other one is a block. The
        base is normal: with heavy tails of the globals, locals whose log scale follows them would have
        no mean.
        """
        dim = whole(dim, "dim", least=1)
        structure = Structure.leading(dim) if structure is None else structure
        loc, log_std = spread * jr.normal(key, (2, dim))
        return cls._of_mean_field(loc, log_std, structure, Normal())

    @classmethod
    def for_target(cls, target: Target, *, key: Key[Array, ""]) -> "Hierarchical":
        """The start for a target, whose structure is found."""
        structure = structure_for(target)
        first = eqx.filter_jit(cls.init)(structure.dim, key=key, structure=structure)
        assert isinstance(first.of_locals, LinearLocals)
        # As few programs as can be: the member is of the kind that the fit ends with.
        nested = NestedLaplace.begin(target, structure, first.of_locals.mean)
        return cls(of_globals=first.of_globals, of_locals=nested)

    @classmethod
    def _of_mean_field(
        cls,
        loc: Float[Array, " dim"],
        log_std: Float[Array, " dim"],
        structure: Structure,
        base: AbstractBase,
    ) -> "Hierarchical":
        (center, mean), (corner, own) = structure.split(loc), structure.split(log_std)
        q = FullRank(loc=center, packed=pack_triangle(jnp.diag(corner)), base=base)
        own_locals = LinearLocals.independent(mean, own, structure)
        return cls(of_globals=q, of_locals=own_locals, base=base)

    def contains(self, other: AbstractFamily) -> bool:
        """Structured Gaussians of the same structure only."""
        if isinstance(other, AbstractStructured) and not self.structure.alike(other.structure):
            return False
        return super().contains(other)

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "Hierarchical":
        """The member itself, with locals that can follow the globals linearly."""
        if isinstance(other, MeanField):
            return type(self)._of_mean_field(other.loc, other.log_std, self.structure, self.base)
        del key
        assert isinstance(other, AbstractStructured)
        structure, root = other.structure, other.root()
        own = LinearLocals.of_gaussian(other.loc, root, structure)
        corner = jnp.tril(root.corner, -1) + jnp.diag(jnp.log(jnp.diagonal(root.corner)))
        center = structure.split(other.loc)[0]
        q = FullRank(loc=center, packed=pack_triangle(corner), base=self.base)
        return type(self)(of_globals=q, of_locals=own, base=self.base)

    @property
    def structure(self) -> Structure:
        """Which coordinates are global, and the blocks of the others."""
        return self.of_locals.structure

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.structure.dim

    @property
    def advice(self) -> Advice:
        """That of the globals' family, whose shape decides."""
        return self.of_globals.advice

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """Globals first, then locals."""
        return self.transport_and_log_prob(e)[0]

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """log q(z) = log q(g) + sum log q_0(e_i) - log |dz/de|."""
        first, own = self.structure.split(e)
        g, log_prob = self.of_globals.transport_and_log_prob(first)
        locals = self.of_locals.at(g)
        log_prob = log_prob + jnp.sum(self.base.log_prob(own)) - locals.log_det(own)
        return self.structure.join(g, locals.transport(own)), log_prob

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The score at z, by the density: that of the globals has what the locals say of them."""
        z, log_prob = self.transport_and_log_prob(e)
        return z, log_prob, jax.grad(self._log_prob)(z)

    def inverse(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """e, globals first."""
        assert isinstance(self.of_globals, Invertible)
        g, own = self.structure.split(z)
        return self.structure.join(self.of_globals.inverse(g), self.of_locals.at(g).inverse(own))

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        g, own = self.structure.split(z)
        locals = self.of_locals.at(g)
        e = locals.inverse(own)
        own_log_prob = jnp.sum(self.base.log_prob(e)) - locals.log_det(e)
        return self.of_globals.log_prob(g) + own_log_prob
