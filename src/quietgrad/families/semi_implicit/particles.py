"""Particles in place of the random input (Lim & Johansen 2024): a finite mixture with an exact density.

q(w) = (1/M) sum_m N(w; mu(eps_m), sigma(eps_m)^2). The particles eps_m are parameters: the gradient of
the ELBO moves each by the drift of their gradient flow (its entropic noise, 1e-8 there, is left out).
"""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import ndtr
from jaxtyping import Array, Float, Key

from ..._util.checks import whole
from ..bases import AbstractBase, Normal
from ..family import AbstractFamily, Advice
from ..full_rank import FullRank
from ..mean_field import MeanField
from .generator import Generator
from .semi_implicit import SHARE, SemiImplicit


class ParticleMixture(AbstractFamily):
    """A mixture of M normals with equal weights, whose means and scales are a network of particles.

    log q and its score are exact, at M evaluations of the network for all draws of a step. A base draw
    is (u, v): the normal quantile of v numbers the particle.
    """

    generator: Generator
    particles: Float[Array, "particles mixing"]
    gaussian: FullRank
    base: AbstractBase = Normal()
    contained: ClassVar[tuple[type[AbstractFamily], ...]] = (MeanField, FullRank)

    @classmethod
    def init(
        cls,
        dim: int,
        *,
        key: Key[Array, ""],
        particles: int = 100,
        mixing: int | None = None,
        widths: tuple[int, ...] = (64, 64),
        share: float = SHARE,
    ) -> "ParticleMixture":
        """Particles that are standard normal draws, in the generator of `SemiImplicit.init`."""
        key_network, key_particles = jr.split(key)
        like = SemiImplicit.init(dim, key=key_network, mixing=mixing, widths=widths, share=share)
        placed = jr.normal(key_particles, (whole(particles, "particles", least=1), like.mixing))
        return cls(generator=like.generator, particles=placed, gaussian=like.gaussian)

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.generator.shift.shape[0]

    @property
    def base_dim(self) -> int:
        """Those of u and one that chooses the particle."""
        return self.dim + 1

    @property
    def advice(self) -> Advice:
        """As for a semi-implicit family."""
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

    def _start_from(self, other: AbstractFamily, *, key: Key[Array, ""]) -> "ParticleMixture":
        """About the Gaussian: as close as M particles come to a normal."""
        like = SemiImplicit(generator=self.generator, gaussian=self.gaussian).start_from(other, key=key)
        assert isinstance(like, SemiImplicit)
        particles = self.particles.astype(other.dtype)
        return ParticleMixture(
            generator=like.generator, particles=particles, gaussian=like.gaussian, base=self.base
        )

    def _whitened(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        count = self.particles.shape[0]
        number = jnp.clip(jnp.floor(count * ndtr(e[-1])).astype(jnp.int32), 0, count - 1)
        mean, log_std = self.generator(self.particles[number])
        return mean + jnp.exp(log_std) * e[:-1]

    def transport(self, e: Float[Array, " base"]) -> Float[Array, " dim"]:
        """z = m + C w, with the particle that the last coordinate of e numbers."""
        return jax.lax.stop_gradient(self.gaussian).transport(self._whitened(e))

    def transport_and_log_prob(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """The mixture's exact log density."""
        w = self._whitened(e)
        return jax.lax.stop_gradient(self.gaussian).transport(w), self._log_mixture(w)

    def transport_and_score(
        self, e: Float[Array, " base"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The exact score, as derivative of the mixture's log density."""
        w = self._whitened(e)
        log_q, slope = jax.value_and_grad(self._log_mixture)(w)
        gaussian = jax.lax.stop_gradient(self.gaussian)
        score = solve_triangular(gaussian.scale(), slope, lower=True, trans="T")
        return gaussian.transport(w), log_q, score

    def _log_mixture(self, w: Float[Array, " dim"]) -> Float[Array, ""]:
        each = jax.vmap(lambda eps: self.generator.log_conditional(w, eps))(self.particles)
        mean = jax.nn.logsumexp(each) - math.log(each.shape[0])
        return mean - jnp.sum(jax.lax.stop_gradient(self.gaussian).log_diagonal())

    def _log_prob(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        return self._log_mixture(jax.lax.stop_gradient(self.gaussian).inverse(z))
