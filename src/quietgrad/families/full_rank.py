"""Full-rank location-scale family, z = mu + C e with C lower triangular and a positive diagonal.

The triangle is one packed vector, so that every parameter is free and counted once.
"""

import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Key, Num

from .._checks import whole
from ..bases import AbstractBase, Normal
from .family import AbstractFamily, Bend, HasEntropy, HasMoments, Invertible, quadratic_form


class FullRank(AbstractFamily, HasEntropy, HasMoments, Invertible):
    """Location `loc` and scale C = strict lower triangle + exp(diagonal), packed in `packed`."""

    loc: Float[Array, " dim"]
    packed: Float[Array, " triangle"]
    base: AbstractBase = Normal()

    @classmethod
    def init(
        cls, dim: int, *, key: Key[Array, ""], spread: float = 0.5, base: AbstractBase = Normal()
    ) -> "FullRank":
        """loc and log diagonal ~ N(0, spread^2) as in the mean-field start; no correlation."""
        dim = whole(dim, "dim", least=1)
        loc, log_diagonal = spread * jr.normal(key, (2, dim))
        return cls(loc=loc, packed=pack_triangle(jnp.diag(log_diagonal)), base=base)

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.loc.shape[0]

    def scale(self) -> Float[Array, "dim dim"]:
        """C, lower triangular."""
        raw = _unpack(self.packed, self.dim)
        return jnp.tril(raw, -1) + jnp.diag(jnp.exp(jnp.diagonal(raw)))

    def log_diagonal(self) -> Float[Array, " dim"]:
        """log of the diagonal of C."""
        return jnp.diagonal(_unpack(self.packed, self.dim))

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z = mu + C e."""
        return self.loc + self.scale() @ e

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """log q(z) = sum log q_0(e_i) - log C_ii."""
        return self.transport(e), jnp.sum(self.base.log_prob(e)) - jnp.sum(self.log_diagonal())

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The path score is C^-T times that of the base."""
        score = solve_triangular(self.scale(), self.base.score(e), lower=True, trans="T")
        return *self.transport_and_log_prob(e), score

    def inverse(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """e = C^-1 (z - mu)."""
        return solve_triangular(self.scale(), z - self.loc, lower=True)

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        return self.transport_and_log_prob(self.inverse(z))[1]

    def entropy(self) -> Float[Array, ""]:
        """log det C plus the base's entropy."""
        return jnp.sum(self.log_diagonal()) + self.dim * self.base.entropy

    def variance(self) -> Float[Array, " dim"]:
        """Squared row lengths of C times the base's variance."""
        return self.base.variance * jnp.sum(self.scale() ** 2, axis=1)

    def covariance_matmul(self, v: Float[Array, "dim k"]) -> Float[Array, "dim k"]:
        """C C' v times the base's variance."""
        scale = self.scale()
        return self.base.variance * (scale @ (scale.T @ v))

    def covariance_trace(self, bend: Bend, diagonal: Float[Array, " dim"]) -> Float[Array, ""]:
        """tr(C'BC) times the base's variance."""
        del diagonal
        return self.base.variance * quadratic_form(self.scale().T, bend)

    def path_metrics(self, e: Float[Array, " base"]) -> dict[str, Float[Array, " dim"]]:
        """1, and sum_{j<i} e_j^2 (from C_ij) + (C_ii e_i)^2 (from log C_ii)."""
        below = jnp.cumsum(e**2) - e**2
        scale = below + (jnp.exp(self.log_diagonal()) * e) ** 2
        return {"loc": jnp.ones_like(e), "packed": scale}


def pack_triangle(matrix: Float[Array, "dim dim"]) -> Float[Array, " triangle"]:
    """The packed form of a lower triangle, its diagonal as it is: the inverse of `_unpack`."""
    dim = matrix.shape[0]
    index = _unpack(jnp.arange(dim * (dim + 1) // 2), dim)
    rows, columns = jnp.tril_indices(dim)
    return jnp.zeros(rows.size, matrix.dtype).at[index[rows, columns]].set(matrix[rows, columns])


def _unpack(packed: Num[Array, " triangle"], dim: int) -> Num[Array, "dim dim"]:
    # Reading `packed` and its reverse as one (dim, dim) array puts every entry once in the lower
    # triangle: slices and a reversal only, where a scatter would be slow.
    return jnp.tril(jnp.concatenate([packed[dim:], packed[::-1]]).reshape(dim, dim))
