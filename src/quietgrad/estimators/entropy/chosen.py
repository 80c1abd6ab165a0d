"""Sticking the landing or not, as a number of the program says: one of the other modes, chosen late."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ...families import AbstractFamily, HasEntropy, split
from .closed import entropy_of
from .mode import AbstractEntropy, Cotangent, Path, over_draws


class Chosen(AbstractEntropy):
    """Sticking the landing where `stick`, else the closed entropy, or the sampled one if there is none.

    Weights need not sum to one: the pull back is linear in them, entropy included. One backward pass.
    """

    stick: Bool[Array, ""]

    def path(self, q: AbstractFamily, e: Float[Array, "draws base"]) -> Path:
        """The transport with its score; the entropy's part is pulled back unless it is dropped."""
        params, rebuild = split(q)
        kept = jnp.where(self.stick, 0.0, 1.0).astype(e.dtype)
        known = isinstance(q, HasEntropy)

        def forward(p: PyTree) -> tuple[Array | tuple[Array, Array], tuple[Array, Array, Array]]:
            z, log_q, score = over_draws(rebuild(p).transport_and_score, e)
            return z if known else (z, log_q), (z, log_q, score)

        _, vjp, (z, log_q, score) = jax.vjp(forward, params, has_aux=True)
        # Selected, not multiplied by zero: where q is nearly singular the score may overflow.
        dropped = jnp.where(self.stick, score, 0)

        def pull_points(cotangent: Cotangent) -> PyTree:
            return vjp(cotangent if known else (cotangent, jnp.zeros_like(log_q)))[0]

        def pull_back(cotangent: Cotangent, weights: Float[Array, " draws"]) -> PyTree:
            weighted = weights[:, None] * (cotangent - dropped)
            if not known:
                return vjp((weighted, -kept * weights))[0]
            entropy = jax.grad(lambda p: entropy_of(rebuild(p)))(params)
            share = kept * jnp.sum(weights)
            return jax.tree.map(lambda g, h: g + share * h, vjp(weighted)[0], entropy)

        return Path(z, log_q, dropped, pull_back, pull_points)
