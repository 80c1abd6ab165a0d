"""Semi-implicit family (Yin & Zhou 2018): a normal whose mean and scale are a network of a random input.

A base draw is e = (u, eps). In the coordinates of a fixed Gaussian, z = m + C w, a point is
w = mu(eps) + sigma(eps) * u, so that q(w) = E_eps N(w; mu(eps), sigma(eps)^2): an infinite mixture. It
can bend and split as flows can, at the cost of a density that is only estimated.
"""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float, Key

from ..._util.checks import whole
from ..bases import AbstractBase, Normal
from ..family import AbstractFamily, Advice, EstimatesDensity
from ..full_rank import FullRank, pack_triangle
from ..mean_field import MeanField
from .generator import Generator
from .proposal import Nodes, Proposal

# Most dimensions of eps if none is asked for. The tasks of the literature have 3 to 10.
MOST_MIXING = 10
# The share of variance that eps has at first: most of it, so that the network has what to bend.
SHARE = 0.75
# The key of nodes that are shared by all points (log_prob), and what is folded in for those of a draw.
SHARED, OWN = 20180215, 1


class SemiImplicit(AbstractFamily, EstimatesDensity):
    """Normal given eps, with mean and scale a network of eps ~ N(0, I); log q is estimated.

    `gaussian` is the fixed Gaussian whose coordinates w are. log q of a draw is the upper estimate of
    `Proposal` with `proposal.nodes` nodes of the draw's own, made from the draw's digits: the same draw
    has the same nodes, and errors of different draws are independent, so that they show in the standard
    error of an ELBO. That ELBO is a lower bound of the one of q, and importance weights are exact.
    `log_prob(z)` of any point is the lower estimate, with nodes that all points share.
    The score is the self-normalised estimate from the same nodes, eps among them: where nodes miss
    what made w, it is that of q(w | eps). `quietgrad.estimators.scores` has others.
    """

    generator: Generator
    gaussian: FullRank
    proposal: Proposal = Proposal()
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField, FullRank)

    @classmethod
    def init(
        cls,
        dim: int,
        *,
        key: Key[Array, ""],
        mixing: int | None = None,
        widths: tuple[int, ...] = (64, 64),
        share: float = SHARE,
        proposal: Proposal | None = None,
    ) -> "SemiImplicit":
        """A standard normal, `share` of whose variance is that of eps (in its first coordinates).

        `mixing` is the dimension of eps: by default that of z, but at least 2 and at most 10. `widths`
        are those of the network's hidden layers.
        """
        dim = whole(dim, "dim", least=1)
        mixing = min(max(dim, 2), MOST_MIXING) if mixing is None else whole(mixing, "mixing", least=1)
        if not 0 < share < 1:
            raise ValueError(f"share must be between 0 and 1, both excluded; got {share!r}")
        gaussian = FullRank(loc=jnp.zeros(dim), packed=pack_triangle(jnp.zeros((dim, dim))))
        generator = Generator.init(dim, mixing, widths, share, key=key)
        return cls(generator=generator, gaussian=gaussian, proposal=proposal or Proposal())

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.generator.shift.shape[0]

    @property
    def mixing(self) -> int:
        """Length of eps."""
        return self.generator.linear.shape[1]

    @property
    def base_dim(self) -> int:
        """Those of u and of eps."""
        return self.dim + self.mixing

    @property
    def advice(self) -> Advice:
        """That of a flow with independent draws: a network learns what is left of a Gaussian."""
        return Advice(
            quiet_draws=16,
            search_draws=32,
            search_sampler="iid",
            search_entropy="stl",
            explore_rate=0.06 / math.sqrt(self.dim),
            anneal_rate=0.01,
            most_anneal_rate=0.01,
            near_rate=0.01,
        )

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "SemiImplicit":
        """A network that bends nothing, in the coordinates of the Gaussian: exactly that Gaussian.

        A generator that was trained is taken back to a standard normal; its hidden layers stay.
        """
        old = jax.tree.map(lambda x: x.astype(other.dtype), self.generator)
        # Of each of the first coordinates eps explains what it did, up to its share at a random start.
        common = min(self.dim, self.mixing)
        explained = jnp.minimum(jnp.sum(old.linear[:common] ** 2, axis=1), SHARE)
        linear = jnp.zeros_like(old.linear).at[:common, :common].set(jnp.diag(jnp.sqrt(explained)))
        log_std = 0.5 * jnp.log(1 - jnp.sum(linear**2, axis=1))
        still = jnp.zeros_like(old.shift), log_std, old.hidden, jnp.zeros_like(old.out)
        generator = Generator(linear, *still)
        gaussian = jax.tree.map(lambda x: x.astype(other.dtype), self.gaussian)
        gaussian = gaussian.start_from(other, key=key)
        assert isinstance(gaussian, FullRank)
        return SemiImplicit(
            generator=generator, gaussian=gaussian, proposal=self.proposal, base=self.base
        )

    def split_draw(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, " mixing"]]:
        """u and eps of a base draw. u comes first: families share the first coordinates of a draw."""
        return e[: self.dim], e[self.dim :]

    def whitened(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """w = mu(eps) + sigma(eps) * u."""
        u, eps = self.split_draw(e)
        mean, log_std = self.generator(eps)
        return mean + jnp.exp(log_std) * u

    def color(self, w: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """z = m + C w."""
        return jax.lax.stop_gradient(self.gaussian).transport(w)

    def score_of_z(self, score: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """A score in w as one in z, C^-T times it."""
        scale = jax.lax.stop_gradient(self.gaussian).scale()
        return solve_triangular(scale, score, lower=True, trans="T")

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z = m + C (mu(eps) + sigma(eps) * u)."""
        return self.color(self.whitened(e))

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """z and the upper estimate of log q(z), whose mean is not below that of log q."""
        w = self.whitened(e)
        return self.color(w), self._mean(self._nodes(w, e).log_weights)

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """z, the upper estimate of log q(z), and its gradient at fixed nodes."""
        w = self.whitened(e)
        nodes = self._nodes(w, e)
        share = jax.nn.softmax(nodes.log_weights)
        scores = jax.vmap(lambda eps: self.generator.conditional_score(w, eps))(nodes.eps)
        return self.color(w), self._mean(nodes.log_weights), self.score_of_z(share @ scores)

    def bounds(self, e: Float[Array, " base"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        """Estimates of log q at the draw whose means are not above, and not below, that of log q."""
        log_weights = self._nodes(self.whitened(e), e).log_weights
        return self._mean(log_weights[1:]), self._mean(log_weights)

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        w = jax.lax.stop_gradient(self.gaussian).inverse(z)
        none = jnp.zeros((0, self.mixing), w.dtype)
        return self._mean(self.proposal(self.generator, w, none, key=jr.key(SHARED)).log_weights)

    def _nodes(self, w: Float[Array, " dim"], e: Float[Array, " base"]) -> Nodes:
        """The eps that made w, and nodes of the draw's own."""
        _, eps = self.split_draw(e)
        return self.proposal(self.generator, w, eps[None, :], key=_key_of_draw(e))

    def _mean(self, log_weights: Float[Array, " nodes"]) -> Float[Array, ""]:
        """log of the mean weight, as a density of z."""
        mean = jax.nn.logsumexp(log_weights) - math.log(log_weights.shape[0])
        return mean - jnp.sum(jax.lax.stop_gradient(self.gaussian).log_diagonal())


def _key_of_draw(e: Float[Array, " base"]) -> Key[Array, ""]:
    """A key from the digits of a draw, by a polynomial in their 32-bit words."""
    words = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(e), jnp.uint32).reshape(-1)
    factors = jnp.cumprod(jnp.full(words.shape, 2654435761, jnp.uint32))
    return jr.fold_in(jr.fold_in(jr.key(SHARED), OWN), jnp.sum(words * factors, dtype=jnp.uint32))
