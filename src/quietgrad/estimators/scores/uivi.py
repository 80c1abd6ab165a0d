"""UIVI's score (Titsias & Ruiz 2019): the plain mean over the states of a Hamiltonian chain."""

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ...families.semi_implicit import Generator
from .chain import HmcChain
from .score import AbstractScore


class ChainMean(AbstractScore):
    """The mean of grad_w log q(w | eps') over chain states after the burn-in.

    The chain starts from a draw of q(eps | w), so that all its states are draws of it and the mean is
    unbiased given w. The gradient of the ELBO is so only as far as the burn-in makes the states
    independent of the eps through which it is pulled back.
    """

    chain: HmcChain = HmcChain()

    @property
    def biased(self) -> bool:
        """No, given w."""
        return False

    def gradients(self, mixing: int) -> int:
        """Those of the chain."""
        del mixing
        return self.chain.gradients

    def init(self, generator: Generator) -> Float[Array, ""]:
        """The chain's log step."""
        return self.chain.init(generator)

    def __call__(
        self,
        generator: Generator,
        w: Float[Array, "points dim"],
        eps: Float[Array, "points mixing"],
        state: Float[Array, ""],
        *,
        key: Key[Array, ""],
    ) -> tuple[Float[Array, "points dim"], Float[Array, ""]]:
        """One chain for each point."""

        def one(
            w: Float[Array, " dim"], eps: Float[Array, " mixing"], key: Key[Array, ""]
        ) -> tuple[Array, Array]:
            run = self.chain(generator, w, eps, state, key=key)
            scores = jax.vmap(lambda x: generator.conditional_score(w, x))(run.states)
            return jnp.mean(scores, axis=0), run.accepted

        scores, accepted = jax.vmap(one)(w, eps, jr.split(key, w.shape[0]))
        return scores, self.chain.adapted(state, jnp.mean(accepted))
