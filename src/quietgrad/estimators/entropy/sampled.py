"""Sampled entropy: -log q(T(e; lambda); lambda) inside the integrand, the paper's choice."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ...families import AbstractFamily, HasEntropy, Invertible, split
from .closed import Closed
from .mode import AbstractEntropy, Cotangent, Path, over_draws


class Sampled(AbstractEntropy):
    """Differentiates -log q along the draws, both through z and through lambda.

    Works for every family. An invertible family with a known entropy (mean-field, full-rank) stretches
    space equally everywhere, so the gradient of -log q is that of the entropy whatever the draw; it is
    then computed as such, which spares a sum over every draw.
    """

    def path(self, q: AbstractFamily, e: Float[Array, "draws base"]) -> Path:
        """The transport and log q share one backward pass."""
        if isinstance(q, HasEntropy) and isinstance(q, Invertible):
            return Closed().path(q, e)
        params, rebuild = split(q)
        (z, log_q), vjp = jax.vjp(lambda p: over_draws(rebuild(p).transport_and_log_prob, e), params)

        def pull_back(cotangent: Cotangent, weights: Float[Array, " draws"]) -> PyTree:
            return vjp((weights[:, None] * cotangent, -weights))[0]

        def pull_points(cotangent: Cotangent) -> PyTree:
            return vjp((cotangent, jnp.zeros_like(log_q)))[0]

        return Path(z, log_q, None, pull_back, pull_points)
