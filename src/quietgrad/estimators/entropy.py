"""Entropy modes: how -log q enters the gradient.

The ELBO is E f(z) + H(q). A mode carries draws to points and keeps the way back; it decides what of H is
differentiated along the draws (Geffner & Domke 2020 compare them).
"""

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ..families import AbstractFamily, HasEntropy, Invertible, split

Cotangent = Float[Array, "draws dim"]


class Path(NamedTuple):
    """A batch of draws carried to points, with the way back to the parameters.

    `z`: the points. `log_q`: what each draw contributes to the ELBO with a minus sign. `score`: the path
    score, grad log q at each point, if the mode subtracts it from the target's gradient, else None.
    `pull_back(c, w)`: the estimate of the ELBO gradient for cotangents c of the points and weights w of
    the draws. `pull_points(c)`: the plain pull back of (weighted) cotangents, without the entropy.
    """

    z: Float[Array, "draws dim"]
    log_q: Float[Array, " draws"]
    score: Float[Array, "draws dim"] | None
    pull_back: Callable[[Cotangent, Float[Array, " draws"]], PyTree]
    pull_points: Callable[[Cotangent], PyTree]

    def integrand_slope(self, slope: Float[Array, "draws dim"]) -> Float[Array, "draws dim"]:
        """The gradient at the points of what is pulled back: grad f, less the score when STL is used."""
        return slope if self.score is None else slope - self.score


class AbstractEntropy(eqx.Module):
    """A way to differentiate the entropy part of the ELBO."""

    def refuses(self, q: AbstractFamily) -> str | None:
        """Why this mode cannot be used with the family; None if it can."""
        del q
        return None

    @abc.abstractmethod
    def path(self, q: AbstractFamily, e: Float[Array, "draws base"]) -> Path:
        """Carry the draws through the family; one `jax.vjp`."""


class Closed(AbstractEntropy):
    """Adds the exact gradient of the entropy; only the target is sampled (Miller et al. 2017)."""

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


class Sampled(AbstractEntropy):
    """Differentiates -log q along the draws, both through z and through lambda: the paper's choice.

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


class StickTheLanding(AbstractEntropy):
    """Pulls back grad f - grad log q through the points only; the score is exact, with no inverse.

    The explicit score of q has mean zero and is dropped (Roeder, Wu & Duvenaud 2017). What is left
    vanishes draw by draw where q equals the posterior, so the noise dies out as the fit improves.
    """

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


def entropy_of(q: AbstractFamily) -> Float[Array, ""]:
    """H(q), for a family that knows it."""
    assert isinstance(q, HasEntropy)
    return q.entropy()


def over_draws(method: Callable[..., PyTree], e: Float[Array, "draws base"]) -> PyTree:
    """Apply a method of the family to every draw."""
    return jax.vmap(method)(e)


REGISTRY: dict[str, type[AbstractEntropy]] = {
    "sampled": Sampled,
    "closed": Closed,
    "stl": StickTheLanding,
}
