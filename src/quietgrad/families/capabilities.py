"""What a family may know of itself, as mix-ins: parts ask for these, never for a family by name."""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# The product of rows with a symmetric matrix.
Matmul = Callable[[Float[Array, "rows dim"]], Float[Array, "rows dim"]]


class HasEntropy(eqx.Module):
    """A family whose entropy is known in closed form."""

    @abc.abstractmethod
    def entropy(self) -> Float[Array, ""]:
        """-E log q(z), in nats."""


class Invertible(eqx.Module):
    """A family whose transport can be undone."""

    @abc.abstractmethod
    def inverse(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """e with T(e) = z."""


class EstimatesDensity(eqx.Module):
    """A family whose log q has no closed form: log q and its score are random estimates.

    `log_q` of a draw is an estimate from above (its mean is not below that of log q), so that an ELBO
    stays a lower bound and importance weights f - log q are exact. What differentiates log q at given
    points, or takes it for exact, refuses such a family.
    """

    @abc.abstractmethod
    def bounds(self, e: Float[Array, " base"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Estimates of log q at the draw e whose means are not above, and not below, that of log q."""


class OnHost(eqx.Module):
    """A family that can carry draws in NumPy: evaluating it compiles no program of its own."""

    @abc.abstractmethod
    def host_transport(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, "draws dim"]:
        """`transport` of many draws."""

    @abc.abstractmethod
    def host_log_prob(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, " draws"]:
        """log q at the points that draws are carried to."""

    def host_transport_and_log_prob(
        self, e: Float[np.ndarray, "draws base"]
    ) -> tuple[Float[np.ndarray, "draws dim"], Float[np.ndarray, " draws"]]:
        """Both, for families that find them together."""
        return self.host_transport(e), self.host_log_prob(e)


class ScalesFollow(Invertible):
    """A family in which the scales of some coordinates follow others, as in a hierarchy.

    Chains move in its base coordinates, where the posterior has one scale.
    """

    @abc.abstractmethod
    def host_inverse(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, "points base"]:
        """`inverse` of many points, on the host."""


class HasMoments(eqx.Module):
    """A location-scale family: known mean and covariance."""

    loc: eqx.AbstractVar[Float[Array, " dim"]]

    @property
    def correlated(self) -> bool:
        """Whether coordinates can be correlated; if not, only the diagonal of a curvature matters."""
        return True

    def mean(self) -> Float[Array, " dim"]:
        """E z."""
        return self.loc

    @abc.abstractmethod
    def variance(self) -> Float[Array, " dim"]:
        """The diagonal of Cov z."""

    @abc.abstractmethod
    def covariance_matmul(self, v: Float[Array, "dim k"]) -> Float[Array, "dim k"]:
        """Cov(z) v, without forming the covariance."""

    @abc.abstractmethod
    def covariance_trace(self, matmul: Matmul, diagonal: Float[Array, " dim"]) -> Float[Array, ""]:
        """tr(B Cov z) for a symmetric B, given by its product with rows and by its diagonal."""


class HasPathMetric(HasMoments):
    """A location-scale family whose path has orthogonal rows.

    For z = loc + (scale) e with one parameter per entry of the scale, the Jacobian J = dz/dlambda has
    orthogonal rows, block by block: <J'a, J'b> = sum_i m_i a_i b_i with m from `path_metrics(e)`. That
    gives inner products of per-draw gradients without the gradients.
    """

    @abc.abstractmethod
    def path_metrics(self, e: Float[Array, " base"]) -> dict[str, Float[Array, " dim"]]:
        """The diagonal of J J' at the draw e, for each block of parameters by its field's name."""

    def path_metric(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """The diagonal of J J' at the draw e, for all parameters."""
        return sum(self.path_metrics(e).values(), jnp.zeros((), e.dtype))


class HasDiagonalScale(eqx.Module):
    """A location-scale family with a scale of its own for every coordinate.

    z = loc + exp(log_std) * e_d + a part that is linear in further parameters, its factors, if there
    are any. e_d are the first dim coordinates of the base draw.
    """

    log_std: eqx.AbstractVar[Float[Array, " dim"]]

    @property
    def factor_products(self) -> int:
        """Products with the Hessian that `factor_shift` takes."""
        return 0

    def factor_shift(
        self,
        hvp: Callable[[Float[Array, " dim"]], Float[Array, " dim"]],
        e: Float[Array, "draws base"],
        slope: Float[Array, "draws dim"],
    ) -> dict[str, Float[Array, "..."]]:
        """The mean gradient of a quadratic minus its average over the draws, for factors by field name.

        The quadratic has the Hessian that `hvp` multiplies by, and the gradients `slope` at the points.
        """
        del hvp, e, slope
        return {}


def quadratic_form(rows: Float[Array, "rows dim"], matmul: Matmul) -> Float[Array, ""]:
    """sum_k r_k'B r_k. Its gradient is 2 B r_k, for which the product is taken once, not twice more."""

    @jax.custom_jvp
    def value(rows: Float[Array, "rows dim"]) -> Float[Array, ""]:
        return jnp.sum(rows * matmul(rows))

    @value.defjvp
    def rule(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:  # pyright: ignore
        (rows,), (moves,) = primals, tangents
        return value(rows), 2 * jnp.sum(moves * matmul(rows))

    return value(rows)
