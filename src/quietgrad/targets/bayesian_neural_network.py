"""Bayesian neural network regression with one hidden ReLU layer (the paper's model for redwine).

z = (log alpha^2, log tau^2, W1 (inputs x hidden), b1, W2, b2). Both log variances have a flat prior,
as in the paper; the posterior is therefore improper in theory (alpha -> 0), and its ELBO is bounded
only because the variational family keeps away from there.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .priors import normal_log_prob
from .target import Target


class BayesianNeuralNetwork(eqx.Module):
    """w ~ N(0, alpha^2), y_i ~ N(network(x_i; w), tau^2)."""

    inputs: int = eqx.field(static=True)
    hidden: int = eqx.field(static=True, default=50)

    @property
    def dim(self) -> int:
        """Length of z."""
        return 2 + self.hidden * (self.inputs + 2) + 1

    def log_prior(self, z: Float[Array, " dim"]) -> Float[Array, ""]:
        """log N(w; 0, alpha^2 I); flat in log alpha^2 and log tau^2."""
        return jnp.sum(normal_log_prob(z[2:], log_std=0.5 * z[0]))

    def log_likelihood(
        self, z: Float[Array, " dim"], data: tuple[Float[Array, "rows inputs"], Float[Array, " rows"]]
    ) -> Float[Array, " rows"]:
        """log N(y_i; network(x_i), tau^2)."""
        x, y = data
        return normal_log_prob(y - self.predict(z, x), log_std=0.5 * z[1])

    def predict(self, z: Float[Array, " dim"], x: Float[Array, "rows inputs"]) -> Float[Array, " rows"]:
        """The network's output for each row of `x`."""
        # Faster: b1 as one more row of W1, met by a column of ones, and rows of data along the last
        # axis, so that the gradients of all draws are one product and nothing is transposed.
        first, second, last = jnp.split(z[2:], self._cuts)
        ones = jnp.ones((x.shape[0], 1), x.dtype)
        weights = first.reshape(self.inputs + 1, self.hidden)
        hidden = jax.nn.relu(weights.T @ jnp.concatenate([x, ones], axis=1).T)
        return second @ hidden + last[0]

    def target(self, x: Float[Array, "rows inputs"], y: Float[Array, " rows"]) -> Target:
        """The posterior given inputs `x` and responses `y`."""
        return Target(self.log_prior, self.log_likelihood, (x, y), dim=self.dim)

    @property
    def _cuts(self) -> list[int]:
        first = (self.inputs + 1) * self.hidden
        return [first, first + self.hidden]
