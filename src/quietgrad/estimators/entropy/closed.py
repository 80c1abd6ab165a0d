"""Closed entropy: H(q) and its gradient from a formula (Geffner & Domke 2020; Miller et al. 2017)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from ...families import AbstractFamily, HasEntropy, split
from .mode import AbstractEntropy, Cotangent, Path, over_draws


def entropy_of(q: AbstractFamily) -> Float[Array, ""]:
    """H(q), for a family that knows it."""
    assert isinstance(q, HasEntropy)
    return q.entropy()


class Closed(AbstractEntropy):
    """Adds the exact gradient of the entropy; only the target is sampled."""

    def refuses(self, q: AbstractFamily) -> str | None:
        """Flows have no closed-form entropy."""
        if isinstance(q, HasEntropy):
            return None
        return f"{type(q).__name__} has no closed-form entropy; use entropy='sampled' or entropy='stl'"

    def path(self, q: AbstractFamily, e: Float[Array, "draws base"]) -> Path:
        """The transport alone is pulled back; the entropy's gradient is added."""
        params, rebuild = split(q)
        z, vjp = jax.vjp(lambda p: over_draws(rebuild(p).transport, e), params)
        entropy, entropy_grad = jax.value_and_grad(lambda p: entropy_of(rebuild(p)))(params)

        def pull_points(cotangent: Cotangent) -> PyTree:
            return vjp(cotangent)[0]

        def pull_back(cotangent: Cotangent, weights: Float[Array, " draws"]) -> PyTree:
            return jax.tree.map(jnp.add, pull_points(weights[:, None] * cotangent), entropy_grad)

        return Path(z, jnp.full(e.shape[0], -entropy), None, pull_back, pull_points)
