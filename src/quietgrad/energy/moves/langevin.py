"""Unadjusted Langevin steps, what short chains of energy-based models usually are."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key, PyTree

from ..problem import AbstractEnergy
from .move import AbstractMove, Chains, Moved, adapted, chosen, finite, propose


class Langevin(AbstractMove):
    """Langevin steps without a test; one gradient each. Biased by the step size.

    The step size follows the share of steps that a test would have accepted: nearly all of them, so
    that the bias of a step is small.
    """

    accept: float = eqx.field(static=True, default=0.9)
    rate: float = eqx.field(static=True, default=0.03)

    @property
    def adjusted(self) -> bool:
        """Never."""
        return False

    def start(self, dim: int) -> float:
        """Half of what adjusted steps begin with."""
        return 0.4 * dim ** (-1 / 6)

    def __call__(
        self,
        model: AbstractEnergy,
        params: PyTree,
        chains: Chains,
        scale: Float[Array, " dim"],
        *,
        adapt: bool,
        key: Key[Array, ""],
    ) -> Moved:
        """Step; a chain stays where its step would end nowhere."""
        proposal = propose(model, params, chains, scale, key=key)
        there = proposal.chains
        taken = finite(there)
        accepted = jnp.mean(jnp.exp(jnp.minimum(proposal.log_ratio, 0)))
        after = adapted(chosen(taken, there, chains), accepted, self.accept, self.rate, adapt=adapt)
        return Moved(after, accepted, there, taken.astype(chains.x.dtype), taken)
