"""What structured Gaussians share: all but their parameters follows from the covariance's root.

z = loc + R e, with R from `structure.BlockRoot`. Transport, density, score, entropy and moments take
O(n) operations and numbers; no array has two axes that both grow with n.
"""

import abc
import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...structure import BlockMatrix, BlockRoot, Structure
from ...structure.elimination import root_of_inverse
from ..family import AbstractFamily, Advice, HasEntropy, HasMoments, Invertible, Matmul, quadratic_form


class AbstractStructured(AbstractFamily, HasMoments, HasEntropy, Invertible):
    """z = loc + R e. Base draws are in the order of the coordinates, as those of mean-field are.

    Newton steps (`block_newton`) need `with_root` and `scale_gradient` beside the rest.
    """

    structure: eqx.AbstractVar[Structure]

    @abc.abstractmethod
    def root(self) -> BlockRoot:
        """R, the root of the covariance for a base of unit variance."""

    @abc.abstractmethod
    def with_root(self, loc: Float[Array, " dim"], root: BlockRoot) -> "AbstractStructured":
        """The member with this location and root."""

    @abc.abstractmethod
    def basis(self) -> BlockRoot:
        """A root without transitions in whose coordinates q has unit scales, or about so."""

    @abc.abstractmethod
    def scale_gradient(
        self, e: Float[Array, "draws base"], slope: Float[Array, "draws dim"]
    ) -> Float[Array, " scales"]:
        """The ELBO's gradient by R, from target gradients at draws, in q's own (Fisher) metric.

        Half its squared length is what a natural-gradient step would gain, in nats. The draws' own
        scatter takes the place of its mean, I (sticking the landing): without noise where q is right.
        """

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.structure.dim

    @property
    def entries_of_a_row(self) -> int:
        """The most entries that a row of the root has."""
        return self.structure.k + self.structure.b * (2 if self.structure.chained else 1)

    @property
    def advice(self) -> Advice:
        """As for a full-rank family, but the rate far from the answer is that of a row's few entries."""
        return Advice(
            quiet_draws=2,
            search_draws=2,
            search_sampler="antithetic",
            search_entropy="stl",
            explore_rate=0.06 / math.sqrt(self.entries_of_a_row),
            anneal_rate=0.02,
            most_anneal_rate=0.02,
            near_rate=0.02,
            quadratic_rank=20,
        )

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z = loc + R e."""
        return self.loc + self._spread(e)

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """log q(z) = sum log q_0(e_i) - log det R."""
        return self.transport(e), jnp.sum(self.base.log_prob(e)) - self.root().log_det()

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The path score is R^-T times that of the base."""
        parts = self.structure.split(self.base.score(e))
        score = self.structure.join(*self.root().transposed_solve(parts))
        return *self.transport_and_log_prob(e), score

    def inverse(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """e = R^-1 (z - loc)."""
        return self.structure.join(*self.root().solve(self.structure.split(z - self.loc)))

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        return jnp.sum(self.base.log_prob(self.inverse(z))) - self.root().log_det()

    def entropy(self) -> Float[Array, ""]:
        """log det R plus the base's entropy."""
        return self.root().log_det() + self.dim * self.base.entropy

    def variance(self) -> Float[Array, " dim"]:
        """The diagonal of RR' times the base's variance."""
        return self.base.variance * self.structure.join(*self.root().variances())

    def covariance_matmul(self, v: Float[Array, "dim k"]) -> Float[Array, "dim k"]:
        """RR'v times the base's variance."""
        pulled = jax.vmap(self.whitened, in_axes=1, out_axes=1)(v)
        return math.sqrt(self.base.variance) * jax.vmap(self._spread, in_axes=1, out_axes=1)(pulled)

    def covariance_trace(self, matmul: Matmul, diagonal: Float[Array, " dim"]) -> Float[Array, ""]:
        """tr(R'BR) times the base's variance, column by column: dim products with B.

        They are taken one after the other and again on the way back, so memory stays O(n).
        """
        del diagonal

        @jax.checkpoint
        def column(number: Array) -> Float[Array, ""]:
            unit = jnp.zeros(self.dim, self.dtype).at[number].set(1.0)
            return quadratic_form(self._spread(unit)[None, :], matmul)

        return self.base.variance * jnp.sum(jax.lax.map(column, jnp.arange(self.dim)))

    def whitened(self, gradient: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """R'g times the base's scale, whose squared length is g' Cov(z) g."""
        pulled = self.root().transposed_times(self.structure.split(gradient))
        return math.sqrt(self.base.variance) * self.structure.join(*pulled)

    def for_blocks(self, mean: Float[Array, " dim"], precision: BlockMatrix) -> "AbstractStructured":
        """The member with this mean and precision, by block elimination; NaN if it is not positive."""
        return self.with_root(mean, scaled(root_of_inverse(precision).root, 1 / self.base.variance**0.5))

    def _spread(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """R e."""
        return self.structure.join(*self.root().times(self.structure.split(e)))


def scaled(root: BlockRoot, factor: float) -> BlockRoot:
    """The root times a number; transitions have no scale."""
    if factor == 1:
        return root
    return BlockRoot(root.corner * factor, root.border * factor, root.diagonal * factor, root.transition)


def checked(structure: Structure | None, dim: int, default: Structure) -> Structure:
    """The structure, or the default; a `ValueError` if it is of another kind or dimension."""
    if structure is None:
        return default
    if structure.dim != dim or structure.kind != default.kind:
        raise ValueError(
            f"a structure of kind {default.kind!r} with {dim} coordinates is needed here; got one of "
            f"kind {structure.kind!r} with {structure.dim}; structure.with_kind({default.kind!r}) "
            "changes the kind"
        )
    return structure
