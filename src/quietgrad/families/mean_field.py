"""Mean-field location-scale family, z = mu + sigma * e (the paper's diagonal Gaussian)."""

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from .._checks import whole
from ..bases import AbstractBase, Normal
from .family import AbstractFamily, Bend, HasEntropy, HasMoments, Invertible


class MeanField(AbstractFamily, HasEntropy, HasMoments, Invertible):
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

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.loc.shape[0]

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

    def covariance_trace(self, bend: Bend, diagonal: Float[Array, " dim"]) -> Float[Array, ""]:
        """sum B_ii sigma_i^2."""
        del bend
        return diagonal @ self.variance()

    def path_metrics(self, e: Float[Array, " base"]) -> dict[str, Float[Array, " dim"]]:
        """1 and (sigma e)^2."""
        return {"loc": jnp.ones_like(e), "log_std": (jnp.exp(self.log_std) * e) ** 2}
