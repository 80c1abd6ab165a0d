"""Sampled entropy: -log q(T(e; lambda); lambda) inside the integrand, the paper's choice."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ..families import AbstractFamily, HasEntropy, Invertible
from .closed import entropy_of
from .mode import AbstractEntropy, Cotangent, Path, over_draws, split


class Sampled(AbstractEntropy):
    """Differentiates -log q along the draws, both through z and through lambda.

    Works for every family. An invertible family with a known entropy (mean-field, full-rank) stretches
    space equally everywhere, so -log q moves by the gradient of the entropy whatever the draw; that
    gradient is then added once instead of once for each draw.
    """

    def path(self, q: AbstractFamily, e: Float[Array, "draws base"]) -> Path:
        """The transport and log q share one backward pass."""
        if isinstance(q, HasEntropy) and isinstance(q, Invertible):
            return _even_path(q, e)
        params, rebuild = split(q)
        (z, log_q), vjp = jax.vjp(lambda p: over_draws(rebuild(p).transport_and_log_prob, e), params)

        def pull_back(cotangent: Cotangent, weights: Float[Array, " draws"]) -> PyTree:
            return vjp((weights[:, None] * cotangent, -weights))[0]

        def pull_points(cotangent: Cotangent) -> PyTree:
            return vjp((cotangent, jnp.zeros_like(log_q)))[0]

        return Path(z, log_q, None, pull_back, pull_points)


def _even_path(q: AbstractFamily, e: Float[Array, "draws base"]) -> Path:
    params, rebuild = split(q)
    z, vjp, log_q = jax.vjp(
        lambda p: over_draws(rebuild(p).transport_and_log_prob, e), params, has_aux=True
    )
    entropy_grad = jax.grad(lambda p: entropy_of(rebuild(p)))(params)

    def pull_points(cotangent: Cotangent) -> PyTree:
        return vjp(cotangent)[0]

    def pull_back(cotangent: Cotangent, weights: Float[Array, " draws"]) -> PyTree:
        total = jnp.sum(weights)
        return jax.tree.map(
            lambda g, h: g + total * h, pull_points(weights[:, None] * cotangent), entropy_grad
        )

    return Path(z, log_q, None, pull_back, pull_points)
