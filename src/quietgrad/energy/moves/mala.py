"""The Metropolis-adjusted Langevin algorithm (Roberts & Tweedie 1996)."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from ..problem import AbstractEnergy
from .move import AbstractMove, Chains, Moved, adapted, chosen, propose


class Mala(AbstractMove):
    """Langevin steps that are accepted so that p is left as it is; one gradient each.

    The step size follows `accept`, the share of steps to be accepted, for which 0.574 is best in many
    dimensions; `rate` says how fast, since p changes while it is learned.
    """

    accept: float = eqx.field(static=True, default=0.574)
    rate: float = eqx.field(static=True, default=0.03)

    @property
    def adjusted(self) -> bool:
        """Always."""
        return True

    def start(self, dim: int) -> float:
        """Of the order that is best for a normal distribution."""
        return 0.8 * dim ** (-1 / 6)

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
        """Propose, and accept or stay."""
        key_move, key_accept = jr.split(key)
        proposal = propose(model, params, chains, scale, key=key_move)
        draw = jr.uniform(key_accept, proposal.log_ratio.shape, proposal.log_ratio.dtype)
        chance = jnp.exp(jnp.minimum(proposal.log_ratio, 0))
        taken = jnp.log(draw) < proposal.log_ratio
        accepted = jnp.mean(chance)
        after = adapted(
            chosen(taken, proposal.chains, chains), accepted, self.accept, self.rate, adapt=adapt
        )
        return Moved(after, accepted, proposal.chains, chance, taken)
