"""Factor-plus-diagonal Gaussian, z = mu + sigma * e_d + F e_f (the paper's rank-5 family).

With A = F / sigma, M = I + A'A = C C' and u = A'e_d - e_f, the density follows from the draw itself:
  Sigma^-1 (z - mu) = (e_d - A M^-1 u) / sigma,    (z - mu)' Sigma^-1 (z - mu) = |e|^2 - |C^-1 u|^2.
Arrays have one row for each column of F and of A, so that long axes come last. The plain Woodbury
form subtracts numbers of size |z - mu|^2 / sigma^2, which float32 cannot hold.
"""

import math
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jaxtyping import Array, Float, Key

from .._util.checks import whole
from .._util.device import on_device
from .bases import AbstractBase, Normal
from .factor_analysis import best_factors
from .family import AbstractFamily, Advice, HasDiagonalScale, HasEntropy, Matmul, quadratic_form
from .fits_quadratic import FitsQuadratic
from .mean_field import MeanField

# Factors start at most this large, relative to the scales, because zero would be a stationary point; and
# as small as to cost no more than so many nats.
FACTOR_NOISE, FACTOR_LOSS = 0.05, 0.1


class LowRank(FitsQuadratic, HasEntropy, HasDiagonalScale):
    """Gaussian with a few directions of correlation: covariance F F' + diag(exp(2 log_std)).

    F' is `factor`, and base draws are (e_d, e_f).
    """

    loc: Float[Array, " dim"]
    log_std: Float[Array, " dim"]
    factor: Float[Array, "rank dim"]
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField,)

    def __check_init__(self):
        """Sums of other bases have no closed-form density."""
        if not isinstance(self.base, Normal):
            raise ValueError(f"LowRank needs the normal base; got {type(self.base).__name__}")

    @classmethod
    def init(cls, dim: int, *, key: Key[Array, ""], rank: int = 5, spread: float = 0.5) -> "LowRank":
        """All parameters ~ N(0, spread^2); a zero factor would be a stationary point."""
        key_diag, key_factor = jr.split(key)
        dim, rank = whole(dim, "dim", least=1), whole(rank, "rank", least=1)
        loc, log_std = spread * jr.normal(key_diag, (2, dim))
        factor = spread * jr.normal(key_factor, (dim, rank)).T
        return cls(loc=loc, log_std=log_std, factor=factor)

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.loc.shape[0]

    @property
    def rank(self) -> int:
        """Number of factors."""
        return self.factor.shape[0]

    @property
    def base_dim(self) -> int:
        """dim + rank."""
        return self.dim + self.rank

    @property
    def advice(self) -> Advice:
        """No pairs, which double the noise of factors, whose gradient is even in e.

        With few draws the factors settle for worse solutions. They have far to go unless Newton steps
        brought them near.
        """
        return Advice(
            quiet_draws=10,
            search_draws=32,
            search_sampler="rqmc",
            search_entropy="stl",
            explore_rate=0.06 / math.sqrt(self.dim),
            anneal_rate=0.05,
            most_anneal_rate=0.2,
            near_rate=0.02,
        )

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "LowRank":
        """The mean-field member with small random factors."""
        assert isinstance(other, MeanField)
        noise = jr.normal(key, self.factor.shape, self.factor.dtype)
        rank, dim = self.factor.shape
        # Random factors of size s cost about rank (dim s^2)^2 / 4 nats.
        size = min(FACTOR_NOISE, (4 * FACTOR_LOSS / (rank * dim**2)) ** 0.25)
        factor = size * jnp.exp(other.log_std)[None, :] * noise
        return LowRank(loc=other.loc, log_std=other.log_std, factor=factor)

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z = mu + sigma * e_d + F e_f."""
        return self.loc + jnp.exp(self.log_std) * e[: self.dim] + e[self.dim :] @ self.factor

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """log q(z) from the draw, by the stable form above."""
        scaled, root = self._capacitance()
        residual = solve_triangular(root, scaled @ e[: self.dim] - e[self.dim :], lower=True)
        return self.transport(e), self._log_density(jnp.sum(e**2) - jnp.sum(residual**2), root)

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The path score is -Sigma^-1 (z - mu), by the stable form above."""
        scaled, root = self._capacitance()
        shift = cho_solve((root, True), scaled @ e[: self.dim] - e[self.dim :])
        score = (shift @ scaled - e[: self.dim]) * jnp.exp(-self.log_std)
        return *self.transport_and_log_prob(e), score

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        # The shortest base draw that leads to z has |e|^2 equal to the quadratic form. Its second
        # solve is one step of iterative refinement, which float32 needs when sigma is small.
        scaled, root = self._capacitance()
        diagonal, factor = (z - self.loc) * jnp.exp(-self.log_std), jnp.zeros(self.rank, z.dtype)
        for _ in range(2):
            shift = cho_solve((root, True), scaled @ diagonal - factor)
            diagonal, factor = diagonal - shift @ scaled, factor + shift
        return self._log_density(jnp.sum(diagonal**2) + jnp.sum(factor**2), root)

    def entropy(self) -> Float[Array, ""]:
        """(d (1 + log 2 pi) + log det Sigma) / 2."""
        return self.dim * self.base.entropy + self._half_log_det(self._capacitance()[1])

    def variance(self) -> Float[Array, " dim"]:
        """sigma^2 plus the squared length of each row of F."""
        return jnp.exp(2 * self.log_std) + jnp.sum(self.factor**2, axis=0)

    def covariance_matmul(self, v: Float[Array, "dim k"]) -> Float[Array, "dim k"]:
        """(sigma^2 + F F') v."""
        return jnp.exp(2 * self.log_std)[:, None] * v + self.factor.T @ (self.factor @ v)

    def covariance_trace(self, matmul: Matmul, diagonal: Float[Array, " dim"]) -> Float[Array, ""]:
        """sum B_ii sigma_i^2 + tr(F'BF)."""
        return diagonal @ jnp.exp(2 * self.log_std) + quadratic_form(self.factor, matmul)

    @property
    def factor_products(self) -> int:
        """One for each factor."""
        return self.rank

    def factor_shift(
        self,
        hvp: Callable[[Float[Array, " dim"]], Float[Array, " dim"]],
        e: Float[Array, "draws base"],
        slope: Float[Array, "draws dim"],
    ) -> dict[str, Float[Array, "..."]]:
        """H F, the mean of g e_f' for a gradient g = b + H (z - mu), minus its average."""
        average = e[:, self.dim :].T @ slope / e.shape[0]
        return {"factor": jax.vmap(hvp)(self.factor) - average}

    def path_metrics(self, e: Float[Array, " base"]) -> dict[str, Float[Array, " dim"]]:
        """1, (sigma e_d)^2, and |e_f|^2 for a row of F."""
        one = jnp.ones_like(self.loc)
        scale = (jnp.exp(self.log_std) * e[: self.dim]) ** 2
        return {"loc": one, "log_std": scale, "factor": one * jnp.sum(e[self.dim :] ** 2)}

    def for_quadratic(
        self, mean: Float[np.ndarray, " dim"], precision: Float[np.ndarray, "dim dim"]
    ) -> "LowRank":
        """The mean, and the factors and diagonal that suit the precision best."""
        log_std, factor = np.asarray(self.log_std, float), np.asarray(self.factor, float)
        log_std, factor = best_factors(precision, log_std, factor)
        return LowRank(
            loc=on_device(mean, self.dtype),
            log_std=on_device(log_std, self.dtype),
            factor=on_device(factor, self.dtype),
        )

    def host_transport(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, "draws dim"]:
        """mu + sigma * e_d + F e_f."""
        loc, std = np.asarray(self.loc, float), np.exp(np.asarray(self.log_std, float))
        return loc + std * e[:, : self.dim] + e[:, self.dim :] @ np.asarray(self.factor, float)

    def host_log_prob(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, " draws"]:
        """By the stable form above."""
        log_std = np.asarray(self.log_std, float)
        scaled = np.asarray(self.factor, float) * np.exp(-log_std)
        root = np.linalg.cholesky(np.eye(self.rank) + scaled @ scaled.T)
        residual = np.linalg.solve(root, scaled @ e[:, : self.dim].T - e[:, self.dim :].T)
        quadratic = np.sum(e**2, axis=1) - np.sum(residual**2, axis=0)
        half_log_det = np.sum(log_std) + np.sum(np.log(np.diagonal(root)))
        return -0.5 * quadratic - half_log_det - self.dim * (self.base.entropy - 0.5)

    def host_log_prob_at(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """The form above has the density of mu + sigma * e_d + F e_f for any e_f, so for e_f = 0."""
        own = (z - np.asarray(self.loc, float)) * np.exp(-np.asarray(self.log_std, float))
        return self.host_log_prob(np.concatenate([own, np.zeros((len(z), self.rank))], axis=1))

    def host_covariance(self) -> Float[np.ndarray, "dim dim"]:
        """sigma^2 + F F'."""
        factor = np.asarray(self.factor, float)
        return np.diag(np.exp(2 * np.asarray(self.log_std, float))) + factor.T @ factor

    def whitened(self, gradient: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " n"]:
        """(sigma g, F'g)."""
        std = np.exp(np.asarray(self.log_std, float))
        return np.concatenate([std * gradient, np.asarray(self.factor, float) @ gradient])

    def scale_gradient(
        self, e: Float[np.ndarray, "draws base"], slope: Float[np.ndarray, "draws dim"]
    ) -> Float[np.ndarray, " scales"]:
        """That of sigma alone: the factors' metric is not diagonal, and they share its noise."""
        std, own = np.exp(np.asarray(self.log_std, float)), e[:, : self.dim]
        # sigma^2 (Sigma^-1)_ii = 1 - |R^-1 F_i / sigma_i|^2 with RR' = I + F' sigma^-2 F (Woodbury).
        scaled = np.asarray(self.factor, float) / std
        root = np.linalg.cholesky(np.eye(self.rank) + scaled @ scaled.T)
        inverse = 1 - np.sum(np.linalg.solve(root, scaled) ** 2, axis=0)
        return (inverse + std * np.mean(slope * own, axis=0)) / np.sqrt(2)

    def _capacitance(self) -> tuple[Float[Array, "rank dim"], Float[Array, "rank rank"]]:
        scaled = self.factor * jnp.exp(-self.log_std)[None, :]
        return scaled, jnp.linalg.cholesky(jnp.eye(self.rank, dtype=scaled.dtype) + scaled @ scaled.T)

    def _half_log_det(self, root: Float[Array, "rank rank"]) -> Float[Array, ""]:
        return jnp.sum(self.log_std) + jnp.sum(jnp.log(jnp.diagonal(root)))

    def _log_density(
        self, quadratic: Float[Array, ""], root: Float[Array, "rank rank"]
    ) -> Float[Array, ""]:
        constant = self.dim * (self.base.entropy - 0.5)
        return -0.5 * quadratic - self._half_log_det(root) - constant
