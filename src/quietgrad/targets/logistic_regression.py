"""Logistic regression with Gaussian weights (the paper's model for a1a).

z = (w_0, w): intercept first. Labels are 0 or 1.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .priors import normal_log_prob
from .target import Target


class LogisticRegression(eqx.Module):
    """w_0, w ~ N(0, prior_std^2), y_i ~ Bernoulli(sigmoid(w_0 + w'x_i))."""

    prior_std: float = 10.0

    def log_prior(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """log N(z; 0, prior_std^2 I)."""
        return jnp.sum(normal_log_prob(z, std=self.prior_std))

    def log_likelihood(
        self, z: Float[Array, " dim"], data: tuple[Float[Array, "rows inputs"], Float[Array, " rows"]]
    ) -> Float[Array, " rows"]:
        """log p(y_i | x_i, z) = y_i t_i - log(1 + exp(t_i)), t = w_0 + Xw."""
        x, y = data
        logit = z[0] + x @ z[1:]
        return y * logit - jnp.logaddexp(logit, 0.0)

    def target(self, x: Float[Array, "rows inputs"], y: Float[Array, " rows"]) -> Target:
        """The posterior given inputs `x` and labels `y` in {0, 1}."""
        return Target(self.log_prior, self.log_likelihood, (x, y), dim=x.shape[1] + 1)
