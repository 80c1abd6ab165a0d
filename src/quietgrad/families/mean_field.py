"""Mean-field location-scale family, z = mu + sigma * e (the paper's diagonal Gaussian)."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key

from .._util.checks import whole
from .._util.device import on_device
from .bases import AbstractBase, Normal
from .family import AbstractFamily, Advice, HasDiagonalScale, HasEntropy, Invertible, Matmul
from .fits_quadratic import FitsQuadratic


class MeanField(FitsQuadratic, HasEntropy, HasDiagonalScale, Invertible):
    """Independent coordinates with location `loc` and scale exp(`log_std`).

    `log_std` is the log of the scale that multiplies e; it is the log standard deviation for the
    normal base.
    """

    loc: Float[Array, " dim"]
    log_std: Float[Array, " dim"]
    base: AbstractBase = Normal()

    @classmethod
    def init(
        cls, dim: int, *, key: Key[Array, ""], spread: float = 0.5, base: AbstractBase = Normal()
    ) -> "MeanField":
        """Both parameters ~ N(0, spread^2), the paper's start."""
        loc, log_std = spread * jr.normal(key, (2, whole(dim, "dim", least=1)))
        return cls(loc=loc, log_std=log_std, base=base)

    @classmethod
    def random(cls, dim: int, rng: np.random.Generator, spread: float = 0.5) -> "MeanField":
        """The same start by numbers of the host, which takes no program."""
        loc, log_std = spread * rng.standard_normal((2, whole(dim, "dim", least=1)))
        dtype = jnp.result_type(float)
        return cls(loc=on_device(loc, dtype), log_std=on_device(log_std, dtype))

    @classmethod
    def start_of(cls, q: AbstractFamily, rng: np.random.Generator, spread: float = 0.5) -> "MeanField":
        """The mean-field start that goes with q: q itself if it is one, else a random one like it."""
        if isinstance(q, MeanField):
            return q
        loc, log_std = spread * rng.standard_normal((2, q.dim))
        return cls.of(loc, log_std, q)

    @classmethod
    def of(
        cls, loc: Float[np.ndarray, " dim"], log_std: Float[np.ndarray, " dim"], like: AbstractFamily
    ) -> "MeanField":
        """The member with these numbers of the host, in the precision and on the base of another q."""
        loc_there, log_std_there = on_device(loc, like.dtype), on_device(log_std, like.dtype)
        return cls(loc=loc_there, log_std=log_std_there, base=like.base)

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.loc.shape[0]

    @property
    def advice(self) -> Advice:
        """A pair takes away most of the noise, and bold steps do no harm."""
        return Advice(
            quiet_draws=2,
            search_draws=2,
            search_sampler="antithetic",
            search_entropy="stl",
            explore_rate=0.1,
            anneal_rate=0.02,
            most_anneal_rate=0.02,
            near_rate=0.02,
        )

    @property
    def correlated(self) -> bool:
        """Never."""
        return False

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z = mu + sigma * e."""
        return self.loc + jnp.exp(self.log_std) * e

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """log q(z) = sum log q_0(e_i) - log sigma_i."""
        return self.transport(e), jnp.sum(self.base.log_prob(e)) - jnp.sum(self.log_std)

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The path score is that of the base divided by sigma."""
        return *self.transport_and_log_prob(e), self.base.score(e) * jnp.exp(-self.log_std)

    def inverse(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """e = (z - mu) / sigma."""
        return (z - self.loc) * jnp.exp(-self.log_std)

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        return self.transport_and_log_prob(self.inverse(z))[1]

    def entropy(self) -> Float[Array, ""]:
        """Sum of the log scales plus the base's entropy."""
        return jnp.sum(self.log_std) + self.dim * self.base.entropy

    def variance(self) -> Float[Array, " dim"]:
        """sigma^2 times the base's variance."""
        return self.base.variance * jnp.exp(2 * self.log_std)

    def covariance_matmul(self, v: Float[Array, "dim k"]) -> Float[Array, "dim k"]:
        """diag(sigma^2) v."""
        return self.variance()[:, None] * v

    def covariance_trace(self, matmul: Matmul, diagonal: Float[Array, " dim"]) -> Float[Array, ""]:
        """sum B_ii sigma_i^2."""
        del matmul
        return diagonal @ self.variance()

    def path_metrics(self, e: Float[Array, " base"]) -> dict[str, Float[Array, " dim"]]:
        """1 and (sigma e)^2."""
        return {"loc": jnp.ones_like(e), "log_std": (jnp.exp(self.log_std) * e) ** 2}

    def for_quadratic(
        self, mean: Float[np.ndarray, " dim"], precision: Float[np.ndarray, "dim dim"]
    ) -> "MeanField":
        """The same mean, and the variances of each coordinate given all others."""
        log_std = -0.5 * np.log(self.base.variance * np.diagonal(precision))
        return MeanField.of(mean, log_std, self)

    def host_transport(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, "draws dim"]:
        """mu + sigma * e."""
        return np.asarray(self.loc, float) + np.exp(np.asarray(self.log_std, float)) * e

    def host_log_prob(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, " draws"]:
        """sum log q_0(e_i) - log sigma_i."""
        return np.sum(self.base.host_log_prob(e), axis=1) - np.sum(np.asarray(self.log_std, float))

    def host_log_prob_at(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """That of (z - mu) / sigma."""
        std = np.exp(np.asarray(self.log_std, float))
        return self.host_log_prob((z - np.asarray(self.loc, float)) / std)

    def host_covariance(self) -> Float[np.ndarray, "dim dim"]:
        """diag(sigma^2) times the base's variance."""
        return np.diag(self.base.variance * np.exp(2 * np.asarray(self.log_std, float)))

    def scale_gradient(
        self, e: Float[np.ndarray, "draws base"], slope: Float[np.ndarray, "draws dim"]
    ) -> Float[np.ndarray, " scales"]:
        """(1 + sigma E[g e]) / sqrt(2), as log sigma has Fisher information 2."""
        std = np.exp(np.asarray(self.log_std, float))
        return (1 + std * np.mean(slope * e, axis=0)) / np.sqrt(2)

    def whitened(self, gradient: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " n"]:
        """sigma g, times the base's scale."""
        return np.sqrt(self.base.variance) * np.exp(np.asarray(self.log_std, float)) * gradient
