"""Sticking the landing (Roeder, Wu & Duvenaud 2017): drop the explicit score of q, which has mean zero.

What is left, grad_z [f(z) - log q(z)] pulled back through z, vanishes draw by draw where q equals the
posterior, so the noise dies out as the fit improves.
"""

import jax
from jaxtyping import Array, Float, PyTree

from ...families import AbstractFamily, split
from .mode import AbstractEntropy, Cotangent, Path, over_draws


class StickTheLanding(AbstractEntropy):
    """Pulls back grad f - grad log q through the points only; the score is exact, with no inverse."""

    def path(self, q: AbstractFamily, e: Float[Array, "draws base"]) -> Path:
        """One forward pass gives z, log q and the score; only z is pulled back."""
        params, rebuild = split(q)

        def forward(p: PyTree) -> tuple[Array, tuple[Array, Array]]:
            z, log_q, score = over_draws(rebuild(p).transport_and_score, e)
            return z, (log_q, score)

        z, vjp, (log_q, score) = jax.vjp(forward, params, has_aux=True)

        def pull_points(cotangent: Cotangent) -> PyTree:
            return vjp(cotangent)[0]

        def pull_back(cotangent: Cotangent, weights: Float[Array, " draws"]) -> PyTree:
            return pull_points(weights[:, None] * (cotangent - score))

        return Path(z, log_q, score, pull_back, pull_points)
