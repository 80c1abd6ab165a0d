"""The contract of a variational family: z = T(e; lambda) with e from a fixed base.

Symbols: e base draw (base_dim,), z point (dim,), lambda the family's arrays, all of them trained.
Every method takes one draw or one point; callers use `jax.vmap`. What only some families know of
themselves are mix-ins (`HasEntropy`, `HasMoments`, ...): parts ask for these, not for a family by name.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from .._util.checks import whole
from .._util.compiling import SOONER, program
from ..targets import Target
from .bases import AbstractBase

# The product of rows with a symmetric matrix.
Matmul = Callable[[Float[Array, "rows dim"]], Float[Array, "rows dim"]]


class Advice(NamedTuple):
    """Draws, samplers (by registered name) and rates that suit a family.

    `quiet_draws` is how many the estimator `quiet` takes a step. `search_draws`,
    `search_sampler` and `search_entropy` make the cheapest estimator that still leads to a good
    solution. Adam's rates: `explore_rate` far from the answer, `anneal_rate` at the start of a decaying
    round, which rounds that gain may raise to `most_anneal_rate`, and `near_rate` where Newton steps
    came first. `quadratic_rank` is the rank of the quadratic that QuadCV learns. The numbers were
    measured on the tasks of the benchmarks.
    """

    quiet_draws: int
    search_draws: int
    search_sampler: str
    search_entropy: str
    explore_rate: float
    anneal_rate: float
    most_anneal_rate: float
    near_rate: float
    quadratic_rank: int = 10


class AbstractFamily(eqx.Module):
    """A reparametrisable distribution whose density is known.

    `contained` lists the other families whose members this one can represent, or come close to. A family
    that lists any also has `_start_from`.
    """

    base: eqx.AbstractVar[AbstractBase]
    contained: ClassVar[tuple[type["AbstractFamily"], ...]] = ()

    @classmethod
    @abc.abstractmethod
    def init(cls, dim: int, *, key: Key[Array, ""]) -> "AbstractFamily":
        """A random start, as in the paper's experiments."""

    @classmethod
    def for_target(cls, target: Target, *, key: Key[Array, ""]) -> "AbstractFamily":
        """The start of a family that was asked for by name: `init`, by one program."""
        assert target.dim is not None
        return program(cls.init)(target.dim, key=key)

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Length of z."""

    @property
    def base_dim(self) -> int:
        """Length of e; equal to `dim` unless the family says otherwise."""
        return self.dim

    @property
    def dtype(self) -> Any:
        """Floating-point type of the parameters, and so of the draws."""
        return jax.tree.leaves(eqx.filter(self, eqx.is_inexact_array))[0].dtype

    @property
    def advice(self) -> Advice:
        """Draws, samplers and rates that suit the family; by default those of a flow.

        Sticking the landing quiets a family that comes close to the posterior. One that cannot start
        from a simpler solution rarely does.
        """
        return Advice(
            quiet_draws=10,
            search_draws=32,
            search_sampler="rqmc",
            search_entropy="stl" if self.contained else "sampled",
            explore_rate=0.06 / math.sqrt(self.dim),
            anneal_rate=0.01,
            most_anneal_rate=0.01,
            near_rate=0.01,
        )

    def contains(self, other: "AbstractFamily") -> bool:
        """Whether `other` is of this family, or of one that it contains, on the same base and dim."""
        if type(other) is type(self):
            return _alike(self, other)
        return isinstance(other, self.contained) and (other.dim, other.base) == (self.dim, self.base)

    def start_from(self, other: "AbstractFamily", *, key: Key[Array, ""]) -> "AbstractFamily":
        """The member of this family closest to `other`, from which its own parameters can be learned."""
        if not self.contains(other):
            names = [cls.__name__ for cls in (type(self), *self.contained)]
            raise ValueError(
                f"{type(self).__name__} cannot start from this {type(other).__name__}: it takes "
                f"{' or '.join(names)} with the same base ({type(self.base).__name__}) and the same "
                f"shapes (dim {self.dim}); got base {type(other.base).__name__} and dim {other.dim}"
            )
        return other if type(other) is type(self) else self._start_from(other, key=key)

    def _start_from(self, other: "AbstractFamily", *, key: Key[Array, ""]) -> "AbstractFamily":
        """The start for an `other` of one of the families in `contained`."""
        raise NotImplementedError(f"{type(self).__name__} lists `contained` without `_start_from`")

    @abc.abstractmethod
    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z = T(e)."""

    @abc.abstractmethod
    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """z = T(e) and log q(z), the latter computed from e (no inverse)."""

    @abc.abstractmethod
    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """z, log q(z) and the path score, grad_z log q(z)."""

    @abc.abstractmethod
    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """log q(z) of one point."""

    def log_prob(self, z: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
        """log q(z), for one point or for any batch of points."""
        z = jnp.asarray(z)
        if z.ndim == 0 or z.shape[-1] != self.dim:
            raise ValueError(f"points must have last axis {self.dim}; got shape {z.shape}")
        return _log_probs(self, z)

    def sample(self, key: Key[Array, ""], draws: int = 1) -> Float[Array, "draws dim"]:
        """Independent draws of z."""
        shape = (whole(draws, "draws", least=1), self.base_dim)
        return _carried(self, self.base.sample(shape, self.dtype, key=key))


@program(level=SOONER)
def _carried(q: AbstractFamily, e: Float[Array, "draws base"]) -> Float[Array, "draws dim"]:
    return jax.vmap(q.transport)(e)


@program(level=SOONER)
def _log_probs(q: AbstractFamily, z: Float[Array, "*batch dim"]) -> Float[Array, "*batch"]:
    return jnp.vectorize(q._log_prob, signature="(d)->()")(z)


F = TypeVar("F", bound=AbstractFamily)


def split(q: F) -> tuple[PyTree, Callable[[PyTree], F]]:
    """The trained arrays of `q`, and the function that puts them back."""
    params, static = eqx.partition(q, eqx.is_inexact_array)
    return params, lambda params: eqx.combine(params, static)


def _alike(a: AbstractFamily, b: AbstractFamily) -> bool:
    """Whether two members of a class differ in nothing but the numbers that are trained."""
    outlines = []
    for q in (a, b):
        trained, fixed = eqx.partition(q, eqx.is_inexact_array)
        outlines.append((jax.tree.map(jnp.shape, trained), fixed))
    return bool(eqx.tree_equal(*outlines))


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


class HasHostDensity(OnHost):
    """A family whose density at any point is known in NumPy, too."""

    @abc.abstractmethod
    def host_log_prob_at(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """`log_prob` of many points."""


@runtime_checkable
class HostMap(Protocol):
    """A map z(u) in NumPy that can be inverted and differentiated."""

    def transport(
        self, u: Float[np.ndarray, "points base"]
    ) -> tuple[Float[np.ndarray, "points dim"], Float[np.ndarray, " points"]]:
        """z and log |dz/du|, up to a constant."""
        ...

    def inverse(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, "points base"]:
        """u of z."""
        ...

    def pull(
        self, u: Float[np.ndarray, "points base"], slope: Float[np.ndarray, "points dim"]
    ) -> Float[np.ndarray, "points base"]:
        """The gradient by u of f(z(u)) + log |dz/du|, for f with this gradient by z."""
        ...


class ScalesFollow(Invertible):
    """A family in which the scales of some coordinates follow others, as in a hierarchy.

    Chains move in its base coordinates, where the posterior has one scale, or in those of a map that
    is close to it and costs less.
    """

    def following(self, rng: np.random.Generator) -> "HostMap | None":
        """Such a map, whose derivatives are known on the host."""
        del rng
        return None

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
