"""Full-rank location-scale family, z = mu + C e with C lower triangular and a positive diagonal.

The triangle is one packed vector, so that every parameter is free and counted once.
"""

import functools
import math
from typing import Any, ClassVar

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Int, Key, Num

from .._util.checks import whole
from .._util.device import on_device
from .bases import AbstractBase, Normal
from .family import AbstractFamily, Advice, HasEntropy, Invertible, Matmul, quadratic_form
from .fits_quadratic import FitsQuadratic
from .low_rank import LowRank
from .mean_field import MeanField
from .structured import Arrowhead, Chain

# Eigenvalues of a scaled precision are at least this share of the largest.
SINGULAR = 1e-15


class FullRank(FitsQuadratic, HasEntropy, Invertible):
    """Gaussian with all correlations: z = `loc` + C e.

    C is lower triangular, a strict triangle + exp(diagonal), packed in `packed`.
    """

    loc: Float[Array, " dim"]
    packed: Float[Array, " triangle"]
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField, LowRank, Arrowhead, Chain)

    @classmethod
    def init(
        cls, dim: int, *, key: Key[Array, ""], spread: float = 0.5, base: AbstractBase = Normal()
    ) -> "FullRank":
        """loc and log diagonal ~ N(0, spread^2) as in the mean-field start; no correlation."""
        dim = whole(dim, "dim", least=1)
        loc, log_diagonal = spread * jr.normal(key, (2, dim))
        return cls(loc=loc, packed=pack_triangle(jnp.diag(log_diagonal)), base=base)

    @classmethod
    def of_host(
        cls,
        loc: Float[np.ndarray, " dim"],
        scale: Float[np.ndarray, "dim dim"],
        dtype: Any,
        base: AbstractBase = Normal(),
    ) -> "FullRank":
        """The member with this location and C, without compiling anything."""
        packed = on_device(host_pack(scale), dtype)
        return cls(loc=on_device(loc, dtype), packed=packed, base=base)

    @classmethod
    def unit(cls, dim: int, dtype: Any, base: AbstractBase = Normal()) -> "FullRank":
        """Unit scales around zero, without compiling anything."""
        return cls.of_host(np.zeros(dim), np.eye(dim), dtype, base)

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.loc.shape[0]

    @property
    def advice(self) -> Advice:
        """Near the optimum a pair and STL take away most of the noise; the triangle is large."""
        return Advice(
            quiet_draws=2,
            search_draws=2,
            search_sampler="antithetic",
            search_entropy="stl",
            explore_rate=0.06 / math.sqrt(self.dim),
            anneal_rate=0.02,
            most_anneal_rate=0.02,
            near_rate=0.02,
            quadratic_rank=20,
        )

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "FullRank":
        """The diagonal of a mean-field member; the Cholesky factor of another one's covariance."""
        del key
        if isinstance(other, MeanField):
            raw = jnp.diag(other.log_std)
        else:
            assert isinstance(other, LowRank | Arrowhead | Chain)
            covariance = other.covariance_matmul(jnp.eye(self.dim, dtype=other.dtype))
            root = jnp.linalg.cholesky(covariance / other.base.variance)
            raw = jnp.tril(root, -1) + jnp.diag(jnp.log(jnp.diagonal(root)))
        return FullRank(loc=other.loc, packed=pack_triangle(raw), base=self.base)

    def scale(self) -> Float[Array, "dim dim"]:
        """C, lower triangular."""
        raw = unpack_triangle(self.packed, self.dim)
        return jnp.tril(raw, -1) + jnp.diag(jnp.exp(jnp.diagonal(raw)))

    def log_diagonal(self) -> Float[Array, " dim"]:
        """log of the diagonal of C."""
        return jnp.diagonal(unpack_triangle(self.packed, self.dim))

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

    def covariance_trace(self, matmul: Matmul, diagonal: Float[Array, " dim"]) -> Float[Array, ""]:
        """tr(C'BC) times the base's variance."""
        del diagonal
        return self.base.variance * quadratic_form(self.scale().T, matmul)

    def path_metrics(self, e: Float[Array, " base"]) -> dict[str, Float[Array, " dim"]]:
        """1, and sum_{j<i} e_j^2 (from C_ij) + (C_ii e_i)^2 (from log C_ii)."""
        below = jnp.cumsum(e**2) - e**2
        scale = below + (jnp.exp(self.log_diagonal()) * e) ** 2
        return {"loc": jnp.ones_like(e), "packed": scale}

    @property
    def any_covariance(self) -> bool:
        """Yes."""
        return True

    def for_quadratic(
        self, mean: Float[np.ndarray, " dim"], precision: Float[np.ndarray, "dim dim"]
    ) -> "FullRank":
        """The quadratic's own mean and covariance."""
        # Scaled to a unit diagonal first: coordinates may differ by many powers of ten.
        scale = np.sqrt(np.diagonal(precision))
        values, vectors = np.linalg.eigh(precision / np.outer(scale, scale))
        # A precision that is singular to rounding still has a member close to it.
        values = np.maximum(values, SINGULAR * values[-1])
        root = np.linalg.qr((vectors / np.sqrt(values)).T)[1].T
        root = root * np.sign(np.diagonal(root)) / scale[:, None]
        return self._with(mean, root / np.sqrt(self.base.variance))

    def host_transport(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, "draws dim"]:
        """mu + C e."""
        return np.asarray(self.loc, float) + e @ self._host_scale().T

    def host_log_prob(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, " draws"]:
        """sum log q_0(e_i) - log C_ii."""
        diagonal = np.asarray(self.packed, float)[np.diagonal(_host_order(self.dim))]
        return np.sum(self.base.host_log_prob(e), axis=1) - np.sum(diagonal)

    def host_inverse(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, "points base"]:
        """C^-1 (z - mu)."""
        return np.linalg.solve(self._host_scale(), (z - np.asarray(self.loc, float)).T).T

    def host_log_prob_at(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """That of C^-1 (z - mu)."""
        return self.host_log_prob(self.host_inverse(z))

    def host_root(self) -> Float[np.ndarray, "dim dim"]:
        """C times the base's scale."""
        return np.sqrt(self.base.variance) * self._host_scale()

    def host_covariance(self) -> Float[np.ndarray, "dim dim"]:
        """C C' times the base's variance."""
        scale = self._host_scale()
        return self.base.variance * scale @ scale.T

    def whitened(self, gradient: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " n"]:
        """C'g, times the base's scale."""
        return np.sqrt(self.base.variance) * gradient @ self._host_scale()

    def scale_gradient(
        self, e: Float[np.ndarray, "draws base"], slope: Float[np.ndarray, "draws dim"]
    ) -> Float[np.ndarray, " scales"]:
        """The triangle of I + E[C'g e'], its diagonal by sqrt(2)."""
        moved = np.eye(self.dim) + (slope @ self._host_scale()).T @ e / len(e)
        rows, columns = np.tril_indices(self.dim)
        return moved[rows, columns] / np.where(rows == columns, np.sqrt(2), 1.0)

    def _with(self, loc: Float[np.ndarray, " dim"], scale: Float[np.ndarray, "dim dim"]) -> "FullRank":
        return FullRank.of_host(loc, scale, self.dtype, self.base)

    def _host_scale(self) -> Float[np.ndarray, "dim dim"]:
        return host_unpack(self.packed, self.dim)


def host_pack(scale: Float[np.ndarray, "dim dim"]) -> Float[np.ndarray, " triangle"]:
    """The packed form of a lower triangle C, with the logarithm of its diagonal."""
    dim = len(scale)
    raw = np.tril(scale, -1) + np.diag(np.log(np.diagonal(scale)))
    packed, (rows, columns) = np.zeros(dim * (dim + 1) // 2), np.tril_indices(dim)
    packed[_host_order(dim)[rows, columns]] = raw[rows, columns]
    return packed


def host_unpack(packed: Any, dim: int) -> Float[np.ndarray, "dim dim"]:
    """C, in double precision."""
    raw = np.tril(np.asarray(packed, float)[_host_order(dim)])
    return np.tril(raw, -1) + np.diag(np.exp(np.diagonal(raw)))


@functools.lru_cache(maxsize=8)
def _host_order(dim: int) -> Int[np.ndarray, "dim dim"]:
    """Where each entry of the triangle is packed: `unpack_triangle` of the numbers 0, 1, 2, ..."""
    packed = np.arange(dim * (dim + 1) // 2)
    return np.concatenate([packed[dim:], packed[::-1]]).reshape(dim, dim)


@functools.lru_cache(maxsize=8)
def _host_places(dim: int) -> tuple[Int[np.ndarray, " triangle"], Int[np.ndarray, " triangle"]]:
    """The row and the column of each packed number."""
    rows, columns = np.tril_indices(dim)
    order = np.argsort(_host_order(dim)[rows, columns])
    # Of 32 bits: indices of 64 do not go with arrays of single precision.
    return rows[order].astype(np.int32), columns[order].astype(np.int32)


def pack_triangle(matrix: Float[Array, "dim dim"]) -> Float[Array, " triangle"]:
    """The packed form of a lower triangle, its diagonal as it is: the inverse of `unpack_triangle`."""
    rows, columns = _host_places(matrix.shape[0])
    if isinstance(matrix, Tracer):
        return matrix[rows, columns]
    # Nothing is compiled for numbers that are at hand.
    return on_device(np.asarray(matrix)[rows, columns])


def unpack_triangle(packed: Num[Array, " triangle"], dim: int) -> Num[Array, "dim dim"]:
    """The lower triangle of a packed vector."""
    if not isinstance(packed, Tracer):
        return on_device(np.tril(np.asarray(packed)[_host_order(dim)]))
    # Reading `packed` and its reverse as one (dim, dim) array puts every entry once in the lower
    # triangle: slices and a reversal only, where a scatter would be slow.
    return jnp.tril(jnp.concatenate([packed[dim:], packed[::-1]]).reshape(dim, dim))
