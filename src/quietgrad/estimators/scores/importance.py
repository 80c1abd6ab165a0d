"""Importance sampling of the score: with nodes that all points share, or with nodes of their own."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ...families.semi_implicit import Generator, Proposal
from .score import AbstractScore


class SharedImportance(AbstractScore):
    """Self-normalised weights q(w | eps_k) for `nodes` prior draws that all points share.

    Biased by the order of one over the effective number of nodes, which falls exponentially with the
    dimension of eps. Costs `nodes` evaluations of the network a step, however many the points.
    """

    nodes: int = eqx.field(static=True, default=1024)

    @property
    def biased(self) -> bool:
        """Self-normalised weights are."""
        return True

    def gradients(self, mixing: int) -> int:
        """None: the network is evaluated `nodes` times for all points together."""
        del mixing
        return 0

    def __call__(
        self,
        generator: Generator,
        w: Float[Array, "points dim"],
        eps: Float[Array, "points mixing"],
        state: None,
        *,
        key: Key[Array, ""],
    ) -> tuple[Float[Array, "points dim"], None]:
        """One network pass for the nodes, and their densities at each point."""
        mean, log_std = jax.vmap(generator)(jr.normal(key, (self.nodes, eps.shape[1]), w.dtype))
        precision = jnp.exp(-2 * log_std)

        def one(w: Float[Array, " dim"]) -> Array:
            gap = mean - w[None, :]
            log_q = -0.5 * jnp.sum(gap**2 * precision, axis=1) - jnp.sum(log_std, axis=1)
            return jax.nn.softmax(log_q) @ (gap * precision)

        return jax.vmap(one)(w), state


class LinearisedImportance(AbstractScore):
    """Self-normalised weights for nodes of the family's own kind: a normal at the mode of q(eps | w).

    Biased by the order of one over the effective number of nodes.
    """

    proposal: Proposal = Proposal()

    @property
    def biased(self) -> bool:
        """Self-normalised weights are."""
        return True

    def gradients(self, mixing: int) -> int:
        """A value for each node, counted as half a gradient, and the Jacobians."""
        return self.proposal.nodes // 2 + (self.proposal.iterations + 1) * (mixing + 1)

    def __call__(
        self,
        generator: Generator,
        w: Float[Array, "points dim"],
        eps: Float[Array, "points mixing"],
        state: None,
        *,
        key: Key[Array, ""],
    ) -> tuple[Float[Array, "points dim"], None]:
        """Nodes that do not depend on the eps that made the point."""

        def one(w: Float[Array, " dim"], key: Key[Array, ""]) -> Array:
            nodes = self.proposal(generator, w, jnp.zeros((0, eps.shape[1]), w.dtype), key=key)
            scores = jax.vmap(lambda x: generator.conditional_score(w, x))(nodes.eps)
            return jax.nn.softmax(nodes.log_weights) @ scores

        return jax.vmap(one)(w, jr.split(key, w.shape[0])), state
