"""Hierarchical Poisson regression of counts on group and site (the paper's model for frisk).

z = (alpha_1 .. alpha_G-1, beta_1 .. beta_P, mu, log sigma_alpha, log sigma_beta); the last group is
the reference, with alpha = 0.
"""

import equinox as eqx
import jax.numpy as jnp
from jax.scipy.special import gammaln
from jaxtyping import Array, Float, Int

from .priors import normal_log_prob
from .target import Target

Counts = tuple[Int[Array, " rows"], Int[Array, " rows"], Float[Array, " rows"], Float[Array, " rows"]]


class HierarchicalPoisson(eqx.Module):
    """log rate = mu + alpha_group + beta_site + offset; alphas and betas normal with unknown scales."""

    groups: int = eqx.field(static=True)
    sites: int = eqx.field(static=True)
    prior_std: float = 10.0

    @property
    def dim(self) -> int:
        """Length of z."""
        return self.groups - 1 + self.sites + 3

    def log_prior(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """mu and both log scales ~ N(0, prior_std^2); alpha ~ N(0, sigma_alpha^2), beta likewise."""
        alpha, beta, top = self._split(z)
        hyper = jnp.sum(normal_log_prob(top, std=self.prior_std))
        alphas = jnp.sum(normal_log_prob(alpha, log_std=top[1]))
        return hyper + alphas + jnp.sum(normal_log_prob(beta, log_std=top[2]))

    def log_likelihood(self, z: Float[Array, " dim"], data: Counts) -> Float[Array, " rows"]:
        """log Poisson(count; rate), rows being (group, site, offset, count)."""
        group, site, offset, count = data
        alpha, beta, top = self._split(z)
        effects = jnp.concatenate([alpha, jnp.zeros_like(alpha[:1])])
        log_rate = top[0] + effects[group] + beta[site] + offset
        return count * log_rate - jnp.exp(log_rate) - gammaln(count + 1)

    def target(self, data: Counts) -> Target:
        """The posterior given rows of (group, site, offset, count)."""
        return Target(self.log_prior, self.log_likelihood, data, dim=self.dim)

    def _split(
        self, z: Float[Array, " dim"]
    ) -> tuple[Float[Array, " a"], Float[Array, " b"], Float[Array, "3"]]:
        last = self.groups - 1 + self.sites
        return z[: self.groups - 1], z[self.groups - 1 : last], z[last:]
