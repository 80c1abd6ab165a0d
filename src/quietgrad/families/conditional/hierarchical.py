"""A hierarchy drawn as it is: the globals first, from any family, then the locals given them.

  g = T(e_g),    z_i = m_i(g) + L_i(g) e_i.
No Gaussian can hold locals whose spread depends on a global scale; this family does, exactly where the
conditionals are Gaussian (`nested.py`). Centred models need not be rewritten for it.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from ..._numerics.lapack import over_points
from ..._util.checks import whole
from ..._util.compiling import SOONER, program
from ..._util.device import on_device
from ...structure import Structure
from ...targets import Target
from ..bases import AbstractBase, Normal
from ..family import AbstractFamily, Advice, HasHostDensity, Invertible, OnHost, ScalesFollow
from ..full_rank import FullRank, pack_triangle
from ..mean_field import MeanField
from ..structured import AbstractStructured, Arrowhead, Chain
from ..structured.found import structure_for
from ..triangular import Triangular
from .at_points import MOST_AT_FIRST, at_points, recentred
from .following import Following, fitted
from .host_locals import HostLocals, join, split
from .host_root import HostRoot, stds
from .linear import LinearLocals
from .locals import AbstractConditional
from .nested import Nested
from .nested_laplace import NestedLaplace

# The sd of the globals in the start for a target: locals are known around its middle.
NEAR = 0.1
# Globals at which locals are looked at for a map that follows them, and how much further out than draws
# of q these are: chains visit tails of the posterior that draws of q rarely do.
FOLLOWED, WIDER = 128, 1.5


class Hierarchical(AbstractFamily, ScalesFollow, HasHostDensity):
    """Hierarchies, centred ones too: globals first, then locals given them.

    `of_globals` is q(g), `of_locals` is q(z | g). Base draws are in the order of the coordinates.

    Transport, density and score take O(n) operations, and with nested locals some gradients of the
    target: they hold it, and gradients leave it alone. On the host draws are carried by the program that
    fits the globals (`at_points`).
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
        structure, dtype = structure_for(target), np.dtype(jnp.zeros(()).dtype)
        # The member is of the kind that the fit ends with, around locals that belong to its globals: far
        # from these a density of states is easily not finite.
        rng = np.random.default_rng(np.asarray(jr.key_data(key)).tolist())
        loc = 0.5 * rng.standard_normal(structure.dim)
        g, own = loc[np.asarray(structure.globals)], loc[np.asarray(structure.blocks)].T.astype(dtype)
        begun = NestedLaplace.begin(target, structure, own, g)
        found = recentred(begun, g, most=MOST_AT_FIRST)
        nested = found if np.all(np.isfinite(np.asarray(found.parameters))) else begun
        q = FullRank.of_host(g, NEAR * np.eye(structure.k), dtype)
        return cls(of_globals=q, of_locals=nested)

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

    def host_transport(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, "draws dim"]:
        """Globals first, then locals."""
        return self.host_transport_and_log_prob(e)[0]

    def host_log_prob(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, " draws"]:
        """As `transport_and_log_prob` has it."""
        return self.host_transport_and_log_prob(e)[1]

    def host_transport_and_log_prob(
        self, e: Float[np.ndarray, "draws base"]
    ) -> tuple[Float[np.ndarray, "draws dim"], Float[np.ndarray, " draws"]]:
        """Both, some draws at a time."""
        nested, q = self.of_locals, self.of_globals
        if not (isinstance(nested, Nested) and isinstance(q, OnHost)):
            z, log_prob = jax.device_get(_carried(self, on_device(e, self.dtype)))
            return z.astype(float), log_prob.astype(float)
        first, own = split(self.structure, e)
        g, log_prob = q.host_transport_and_log_prob(first)
        log_prob = log_prob + np.sum(self.base.host_log_prob(own), axis=(1, 2))
        z, begun = [], 0
        for found in at_points(nested, g):
            some = slice(begun, begun := begun + len(found.values))
            locals = HostLocals(nested, found)
            z.append(join(self.structure, g[some], locals.transport(own[some])))
            log_prob[some] -= locals.log_det(own[some])
        return np.concatenate(z), log_prob

    def host_inverse(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, "points base"]:
        """`inverse` of many points."""
        nested, q = self.of_locals, self.of_globals
        if not (isinstance(nested, Nested) and isinstance(q, FullRank | Triangular)):
            return np.asarray(_inverses(self, on_device(z, self.dtype)), float)
        g, own = split(self.structure, z)
        e, begun = [], 0
        for found in at_points(nested, g):
            some = slice(begun, begun := begun + len(found.values))
            e.append(HostLocals(nested, found).inverse(own[some]))
        return join(self.structure, q.host_inverse(g), np.concatenate(e))

    def host_log_prob_at(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """Some points at a time, by the program that fits the globals."""
        nested, q = self.of_locals, self.of_globals
        if not (isinstance(nested, Nested) and isinstance(q, HasHostDensity)):
            return np.asarray(_densities(self, on_device(z, self.dtype)), float)
        g, own = split(self.structure, z)
        log_prob, begun = q.host_log_prob_at(g), 0
        for found in at_points(nested, g):
            some = slice(begun, begun := begun + len(found.values))
            locals = HostLocals(nested, found)
            e = locals.inverse(own[some])
            log_prob[some] += np.sum(self.base.host_log_prob(e), axis=(1, 2)) - locals.log_det(e)
        return log_prob

    def following(self, rng: np.random.Generator) -> Following | None:
        """A map close to the transport that needs no solution for the locals; None if there is none.

        Where there are fewer points than the globals' covariance asks for, or locals are not nested.
        """
        nested, q = self.of_locals, self.of_globals
        if not (isinstance(nested, Nested) and isinstance(q, OnHost)):
            return None
        e = WIDER * rng.standard_normal((FOLLOWED - 1, self.structure.k))
        g = q.host_transport(np.concatenate([np.zeros((1, self.structure.k)), e]))
        mean, std, root = [], [], None
        for found in at_points(nested, g):
            own = HostLocals(nested, found)
            if root is None:
                tie = None if own.transition is None else own.transition[0]
                root = HostRoot(own.diagonal[0], tie)
            mean.append(own.mean)
            std.append(stds(own.diagonal, own.transition))
        assert root is not None
        middle, spread = (np.concatenate(x).reshape(len(g), -1) for x in (mean, std))
        fine = np.all(np.isfinite(middle) & (spread > 0) & (spread < np.inf), axis=1)
        if not fine[0] or np.count_nonzero(fine) < 2 * (self.structure.k + 1):
            return None
        return fitted(self.structure, g[fine], middle[fine], spread[fine], root)

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        g, own = self.structure.split(z)
        locals = self.of_locals.at(g)
        e = locals.inverse(own)
        own_log_prob = jnp.sum(self.base.log_prob(e)) - locals.log_det(e)
        return self.of_globals.log_prob(g) + own_log_prob


@program(level=SOONER)
def _carried(
    q: Hierarchical, e: Float[Array, "draws base"]
) -> tuple[Float[Array, "draws dim"], Float[Array, " draws"]]:
    return over_points(q.transport_and_log_prob, e)


@program(level=SOONER)
def _inverses(q: Hierarchical, z: Float[Array, "points dim"]) -> Float[Array, "points base"]:
    return over_points(q.inverse, z)


@program(level=SOONER)
def _densities(q: Hierarchical, z: Float[Array, "points dim"]) -> Float[Array, " points"]:
    return over_points(q.log_prob, z)
