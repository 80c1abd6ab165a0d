"""Gaussians with a sparse root of the covariance: crossed effects, where no blocks are independent.

  z = loc + S (I + V) e,    S = diag(exp(log_std)),    V strictly lower triangular in some order.
An entry V_ij says that z_i follows the draw of z_j. If V has an entry for every pair of coordinates that
meet in the precision, with levels of coordinates that do not meet each other, then each level given
those before it is exact: of a crossed design one factor's effects given the other's. The marginal of the
first level is mean-field. (Columns of such a root are the sparse factors of Schafer, Katzfuss & Owhadi
2021, for the precision.)
"""

import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from .._util.checks import whole
from .._util.compiling import program
from .._util.device import on_device
from ..structure import Pattern, pattern_of
from ..targets import Target
from .bases import AbstractBase, Normal
from .family import AbstractFamily, Advice, HasEntropy, HasMoments, Invertible, Matmul
from .mean_field import MeanField

NONE = (
    "this target's Hessian has no sparse pattern that products with it show, or none beyond its "
    "diagonal; use 'low-rank', 'mean-field', or a member made with pattern=..."
)


class SparseGaussian(AbstractFamily, HasMoments, HasEntropy, Invertible):
    """`values` are the entries of V at (`rows`, `columns`); `depth` is the longest chain of them.

    Transport, density, score and entropy take O(entries), and `depth` times that to undo a transport.
    """

    loc: Float[Array, " dim"]
    log_std: Float[Array, " dim"]
    values: Float[Array, " entries"]
    rows: Int[Array, " entries"]
    columns: Int[Array, " entries"]
    depth: int = eqx.field(static=True)
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField,)

    @classmethod
    def init(
        cls,
        dim: int,
        *,
        key: Key[Array, ""],
        pattern: Pattern | None = None,
        spread: float = 0.5,
        base: AbstractBase = Normal(),
    ) -> "SparseGaussian":
        """loc and log scales ~ N(0, spread^2) as in the mean-field start; no correlation.

        Without a pattern, all coordinates follow the first one.
        """
        pattern = Pattern.leading(whole(dim, "dim", least=1)) if pattern is None else pattern
        if pattern.dim != dim:
            raise ValueError(f"the pattern is for {pattern.dim} coordinates; got dim {dim}")
        loc, log_std = spread * jr.normal(key, (2, dim))
        return cls._uncorrelated(loc, log_std, pattern.rows, pattern.columns, pattern.depth, base)

    @classmethod
    def for_target(cls, target: Target, *, key: Key[Array, ""]) -> "SparseGaussian":
        """The start for a target, whose pattern is found."""
        assert target.dim is not None
        pattern = pattern_of(target)
        if pattern is None:
            raise ValueError(NONE)
        # Places are numbers of the pattern, not of the program.
        unit = program(MeanField.init)(target.dim, key=key)
        rows, columns = (on_device(places) for places in (pattern.rows, pattern.columns))
        return cls._uncorrelated(unit.loc, unit.log_std, rows, columns, pattern.depth, Normal())

    @classmethod
    def _uncorrelated(
        cls,
        loc: Float[Array, " dim"],
        log_std: Float[Array, " dim"],
        rows: Int[Array, " entries"] | Int[np.ndarray, " entries"],
        columns: Int[Array, " entries"] | Int[np.ndarray, " entries"],
        depth: int,
        base: AbstractBase,
    ) -> "SparseGaussian":
        return cls(
            loc=loc,
            log_std=log_std,
            values=jnp.zeros(len(rows), loc.dtype),
            rows=jnp.asarray(rows),
            columns=jnp.asarray(columns),
            depth=depth,
            base=base,
        )

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "SparseGaussian":
        """The mean-field member itself."""
        del key
        assert isinstance(other, MeanField)
        return type(self)._uncorrelated(
            other.loc, other.log_std, self.rows, self.columns, self.depth, self.base
        )

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.loc.shape[0]

    @property
    def advice(self) -> Advice:
        """As for structured Gaussians: a row has few entries."""
        return Advice(
            quiet_draws=2,
            search_draws=2,
            search_sampler="antithetic",
            search_entropy="stl",
            explore_rate=0.06 / math.sqrt(1 + self.values.size / max(1, self.dim)),
            anneal_rate=0.02,
            most_anneal_rate=0.02,
            near_rate=0.02,
        )

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z = loc + S (I + V) e."""
        return self.loc + jnp.exp(self.log_std) * (e + self._times(e))

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """log q(z) = sum log q_0(e_i) - sum log_std."""
        return self.transport(e), jnp.sum(self.base.log_prob(e)) - jnp.sum(self.log_std)

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The path score is S^-1 (I + V)^-T times that of the base."""
        score = self._undone_transposed(self.base.score(e)) * jnp.exp(-self.log_std)
        return *self.transport_and_log_prob(e), score

    def inverse(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """e = (I + V)^-1 S^-1 (z - loc): what a level follows is known after so many rounds."""
        moved = (z - self.loc) * jnp.exp(-self.log_std)
        e = moved
        for _ in range(self.depth):
            e = moved - self._times(e)
        return e

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        return jnp.sum(self.base.log_prob(self.inverse(z))) - jnp.sum(self.log_std)

    def entropy(self) -> Float[Array, ""]:
        """sum log_std plus the base's entropy."""
        return jnp.sum(self.log_std) + self.dim * self.base.entropy

    def variance(self) -> Float[Array, " dim"]:
        """The rows' squared lengths times the base's variance."""
        squares = 1 + jnp.zeros(self.dim, self.dtype).at[self.rows].add(self.values**2)
        return self.base.variance * jnp.exp(2 * self.log_std) * squares

    def covariance_matmul(self, v: Float[Array, "dim k"]) -> Float[Array, "dim k"]:
        """S (I + V)(I + V)' S v times the base's variance."""
        std = jnp.exp(self.log_std)[:, None]
        pulled = std * v
        pulled = pulled + self._transposed_times(pulled)
        return self.base.variance * std * (pulled + self._times(pulled))

    def covariance_trace(self, matmul: Matmul, diagonal: Float[Array, " dim"]) -> Float[Array, ""]:
        """The columns of the root are full where there are globals: all of it, in d products."""
        del diagonal
        root = self.covariance_matmul(jnp.eye(self.dim, dtype=self.dtype))
        return jnp.trace(matmul(root))

    def _times(self, e: Float[Array, "dim *k"]) -> Float[Array, "dim *k"]:
        """V e."""
        values = self.values.reshape(-1, *[1] * (e.ndim - 1))
        return jnp.zeros_like(e).at[self.rows].add(values * e[self.columns])

    def _transposed_times(self, x: Float[Array, "dim *k"]) -> Float[Array, "dim *k"]:
        """V'x."""
        values = self.values.reshape(-1, *[1] * (x.ndim - 1))
        return jnp.zeros_like(x).at[self.columns].add(values * x[self.rows])

    def _undone_transposed(self, x: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """(I + V)^-T x."""
        y = x
        for _ in range(self.depth):
            y = x - self._transposed_times(y)
        return y
