"""Mixtures of Gaussians, as a smooth map of normal draws.

q(z) = sum_k w_k N(z; mu_k, C_k C_k'). A draw that picks a component is not differentiable by the
weights. So coordinate after coordinate is a quantile of its conditional distribution (Rosenblatt 1952),
  F(z_j | z_1 ... z_(j-1)) = Phi(e_j),   a one-dimensional mixture with weights that depend on the past,
which is a smooth invertible map of e ~ N(0, I): pathwise gradients exist for all parameters, weights
included, draws of a single Gaussian are carried as by its Cholesky factor, and every estimator applies.
log q and its score are closed forms, as is the inverse.
"""

import math
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import scipy.linalg
import scipy.special
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp, ndtr, ndtri
from jaxtyping import Array, Float, Key

from .._util.checks import whole
from .._util.device import on_device
from .bases import AbstractBase, Normal
from .family import AbstractFamily, Advice, HasHostDensity, Invertible
from .full_rank import FullRank, host_pack, host_unpack, pack_triangle, unpack_triangle
from .low_rank import LowRank
from .mean_field import MeanField
from .mixture_quantile import host_quantile, quantile
from .structured import Arrowhead, Chain

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
# How far components that start from one Gaussian are moved apart, in its standard deviations. Equal
# components have equal gradients and would stay together.
APART = 0.2


class Components(NamedTuple):
    """A mixture in double precision on the host: log weights, means and lower triangular roots."""

    log_weights: Float[np.ndarray, " k"]
    loc: Float[np.ndarray, "k dim"]
    root: Float[np.ndarray, "k dim dim"]


class Mixture(AbstractFamily, Invertible, HasHostDensity):
    """Full-rank Gaussians with weights, for several modes or bent shapes.

    Means are `loc`, triangles packed as in `FullRank`, and weights softmax(`logits`).
    """

    logits: Float[Array, " k"]
    loc: Float[Array, "k dim"]
    packed: Float[Array, "k triangle"]
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (
        MeanField,
        LowRank,
        FullRank,
        Arrowhead,
        Chain,
    )

    @classmethod
    def init(
        cls, dim: int, *, key: Key[Array, ""], components: int = 2, spread: float = 0.5
    ) -> "Mixture":
        """Equal weights; means and log diagonals ~ N(0, spread^2), as in the full-rank start."""
        dim = whole(dim, "dim", least=1)
        components = whole(components, "components", least=1)
        loc, log_diagonal = spread * jr.normal(key, (2, components, dim))
        packed = jax.vmap(lambda diagonal: pack_triangle(jnp.diag(diagonal)))(log_diagonal)
        return cls(logits=jnp.zeros(components), loc=loc, packed=packed)

    @classmethod
    def of(cls, found: Components, dtype: np.dtype) -> "Mixture":
        """The mixture with these weights, means and roots."""
        packed = np.stack([host_pack(root) for root in found.root])
        weights = found.log_weights - scipy.special.logsumexp(found.log_weights)
        weights, loc, packed = (on_device(part, dtype) for part in (weights, found.loc, packed))
        return cls(logits=weights, loc=loc, packed=packed)

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.loc.shape[1]

    @property
    def count(self) -> int:
        """Number of components."""
        return self.loc.shape[0]

    @property
    def advice(self) -> Advice:
        """Close to the posterior STL takes the noise away; weights need draws in every component."""
        return Advice(
            quiet_draws=10,
            search_draws=32,
            search_sampler="rqmc",
            search_entropy="stl",
            explore_rate=0.06 / math.sqrt(self.dim),
            anneal_rate=0.01,
            most_anneal_rate=0.01,
            near_rate=0.01,
        )

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "Mixture":
        """The Gaussian once for each component, moved a little apart."""
        gaussian = other
        if not isinstance(other, FullRank):
            unit = FullRank.init(self.dim, key=key)
            gaussian = unit.start_from(other, key=key)
        assert isinstance(gaussian, FullRank)
        moves = jr.normal(key, (self.count, self.dim), gaussian.dtype)
        moves = APART * (moves - jnp.mean(moves, axis=0, keepdims=True)) / math.sqrt(self.dim)
        return Mixture(
            logits=jnp.zeros(self.count, gaussian.dtype),
            loc=gaussian.loc[None] + moves @ gaussian.scale().T,
            packed=jnp.tile(gaussian.packed, (self.count, 1)),
        )

    def scales(self) -> Float[Array, "k dim dim"]:
        """C_k, lower triangular."""

        def scale(packed: Float[Array, " triangle"]) -> Float[Array, "dim dim"]:
            raw = unpack_triangle(packed, self.dim)
            return jnp.tril(raw, -1) + jnp.diag(jnp.exp(jnp.diagonal(raw)))

        return jax.vmap(scale)(self.packed)

    def weights(self) -> Float[Array, " k"]:
        """w_k."""
        return jax.nn.softmax(self.logits)

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z by conditional quantiles."""
        return self._carry(e)[0]

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """log q(z) = log sum_k w_k N(z; mu_k, C_k C_k')."""
        z, log_joint, _ = self._carry(e)
        return z, logsumexp(log_joint)

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The path score is -sum_k r_k C_k^-T x_k, with x_k = C_k^-1 (z - mu_k) and r_k = p(k | z)."""
        z, log_joint, x = self._carry(e)
        turned = _solved(self.scales(), x, "T")
        return z, logsumexp(log_joint), -jax.nn.softmax(log_joint) @ turned

    def inverse(self, z: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """e_j = Phi^-1(F(z_j | z_1 ... z_(j-1))), from the nearer tail."""
        x, terms = self._standardised(z)
        past = jnp.cumsum(terms, axis=1) - terms
        weights = jax.nn.softmax(jax.nn.log_softmax(self.logits)[:, None] + past, axis=0)
        below, above = (jnp.sum(weights * ndtr(side), axis=0) for side in (x, -x))
        return jnp.where(below < above, ndtri(below), -ndtri(above))

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        terms = self._standardised(z)[1]
        return logsumexp(jax.nn.log_softmax(self.logits) + jnp.sum(terms, axis=1))

    def _standardised(
        self, z: Float[Array, " dim"]
    ) -> tuple[Float[Array, "k dim"], Float[Array, "k dim"]]:
        """x_k = C_k^-1 (z - mu_k), and what each coordinate adds to log N(z; mu_k, C_k C_k')."""
        scales = self.scales()
        x = _solved(scales, z[None] - self.loc)
        log_diagonal = jnp.log(jnp.diagonal(scales, axis1=1, axis2=2))
        return x, -0.5 * x**2 - HALF_LOG_2PI - log_diagonal

    def _carry(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, " k"], Float[Array, "k dim"]]:
        """z, log w_k N(z; mu_k, C_k C_k') and x_k."""
        scales = self.scales()

        def coordinate(
            carry: tuple[Array, Array], given: tuple[Array, Array, Array, Array]
        ) -> tuple[tuple[Array, Array], Array]:
            x, log_joint = carry
            number, e, loc, rows = given
            mean = loc + jnp.sum(rows * x, axis=1)
            std = rows[:, number]
            z = quantile(e, jax.nn.softmax(log_joint), mean, std)
            new = (z - mean) / std
            log_joint = log_joint - 0.5 * new**2 - HALF_LOG_2PI - jnp.log(std)
            return (x.at[:, number].set(new), log_joint), z

        start = jnp.zeros_like(self.loc), jax.nn.log_softmax(self.logits)
        given = jnp.arange(self.dim), e, self.loc.T, jnp.moveaxis(scales, 1, 0)
        (x, log_joint), z = jax.lax.scan(coordinate, start, given)
        return z, log_joint, x

    # On the host

    def host_components(self) -> Components:
        """Weights, means and roots in double precision."""
        root = np.stack([host_unpack(packed, self.dim) for packed in np.asarray(self.packed)])
        logits = np.asarray(self.logits, float)
        return Components(logits - scipy.special.logsumexp(logits), np.asarray(self.loc, float), root)

    def host_transport(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, "draws dim"]:
        """`transport` of many draws."""
        return self._host_carry(e)[0]

    def host_log_prob(self, e: Float[np.ndarray, "draws base"]) -> Float[np.ndarray, " draws"]:
        """log q at the points that draws are carried to."""
        return self._host_carry(e)[1]

    def host_transport_and_log_prob(
        self, e: Float[np.ndarray, "draws base"]
    ) -> tuple[Float[np.ndarray, "draws dim"], Float[np.ndarray, " draws"]]:
        """Both."""
        return self._host_carry(e)

    def host_log_prob_at(self, z: Float[np.ndarray, "points dim"]) -> Float[np.ndarray, " points"]:
        """One component after the other."""
        log_weights, loc, root = self.host_components()
        joint = np.empty((len(z), len(loc)))
        for k, triangle in enumerate(root):
            x = scipy.linalg.solve_triangular(triangle, (z - loc[k]).T, lower=True)
            log_det = np.sum(np.log(np.diagonal(triangle)))
            joint[:, k] = log_weights[k] - 0.5 * np.sum(x**2, axis=0) - self.dim * HALF_LOG_2PI - log_det
        return np.asarray(scipy.special.logsumexp(joint, axis=1))

    def _host_carry(
        self, e: Float[np.ndarray, "draws base"]
    ) -> tuple[Float[np.ndarray, "draws dim"], Float[np.ndarray, " draws"]]:
        log_weights, loc, root = self.host_components()
        draws, dim = e.shape
        z, x = np.zeros((draws, dim)), np.zeros((draws, len(loc), dim))
        log_joint = np.tile(log_weights, (draws, 1))
        for j in range(dim):
            mean = loc[:, j] + np.einsum("ki,nki->nk", root[:, j, :j], x[:, :, :j])
            std = np.broadcast_to(root[:, j, j], mean.shape)
            z[:, j] = host_quantile(e[:, j], scipy.special.softmax(log_joint, axis=1), mean, std)
            x[:, :, j] = (z[:, j, None] - mean) / std
            log_joint = log_joint - 0.5 * x[:, :, j] ** 2 - HALF_LOG_2PI - np.log(std)
        return z, np.asarray(scipy.special.logsumexp(log_joint, axis=1))


def _solved(
    scales: Float[Array, "k dim dim"], x: Float[Array, "k dim"], trans: str = "N"
) -> Float[Array, "k dim"]:
    """C_k^-1 x_k, one component after the other: a batch of large matrices can wait for ever on the CPU
    (`_numerics/lapack.py`)."""
    pairs = zip(scales, x, strict=True)
    return jnp.stack([solve_triangular(c, one, lower=True, trans=trans) for c, one in pairs])
