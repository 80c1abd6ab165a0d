"""Hamiltonian chains of q(eps | w) from the eps that made w, a draw of it, and UIVI's score from them.

Titsias & Ruiz (2019) take the plain mean over the states (`ChainMean`). There is one step size for all
chains, adapted from call to call by the mean acceptance, so that it does not depend on the draws that it
is used for.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ...families.semi_implicit import Generator
from .score import AbstractScore


class Trajectory(NamedTuple):
    """The states after the burn-in, and every point of every leapfrog path with its reverse score t."""

    states: Float[Array, "states mixing"]
    path: Float[Array, "path mixing"]
    path_scores: Float[Array, "path mixing"]
    accepted: Float[Array, ""]


class HmcChain(eqx.Module):
    """`burn_in` + `states` states, `leapfrogs` steps each, as in the paper; identity mass.

    log step moves by `rate` times (accepted - a) / (1 - a), at most by `rate` either way, with a =
    `acceptance`; 0.9 is the paper's aim. A rate of 0.1 finds the scale within some tens of calls, and
    then moves the step by about 3 %, as some hundred transitions a call leave acceptance an error of
    0.03.
    """

    burn_in: int = eqx.field(static=True, default=5)
    states: int = eqx.field(static=True, default=5)
    leapfrogs: int = eqx.field(static=True, default=5)
    acceptance: float = 0.9
    rate: float = 0.1

    @property
    def gradients(self) -> int:
        """One for each leapfrog step, and one at the start."""
        return (self.burn_in + self.states) * self.leapfrogs + 1

    def init(self, generator: Generator) -> Float[Array, ""]:
        """The log of a cautious step: half the least width that the linear part leaves a direction."""
        scaled = generator.linear * jnp.exp(-generator.log_std)[:, None]
        return jnp.log(0.5) - 0.5 * jnp.log1p(jnp.sum(scaled**2))

    def adapted(self, log_step: Float[Array, ""], accepted: Float[Array, ""]) -> Float[Array, ""]:
        """The log step for the next call."""
        off = (accepted - self.acceptance) / (1 - self.acceptance)
        return log_step + self.rate * jnp.clip(off, -1.0, 1.0)

    def __call__(
        self,
        generator: Generator,
        w: Float[Array, " dim"],
        eps: Float[Array, " mixing"],
        log_step: Float[Array, ""],
        *,
        key: Key[Array, ""],
    ) -> Trajectory:
        """The chain for one point."""
        step = jnp.exp(log_step)
        slope_of = jax.value_and_grad(lambda x: generator.log_joint(w, x))

        def leapfrog(at: tuple, _: None) -> tuple[tuple, tuple]:
            x, p, value, slope = at
            p = p + 0.5 * step * slope
            x = x + step * p
            value, slope = slope_of(x)
            return (x, p + 0.5 * step * slope, value, slope), (x, slope)

        def transition(at: tuple, key: Key[Array, ""]) -> tuple[tuple, tuple]:
            x, value, slope = at
            key_momentum, key_accept = jr.split(key)
            p = jr.normal(key_momentum, x.shape, x.dtype)
            end, path = jax.lax.scan(leapfrog, (x, p, value, slope), None, length=self.leapfrogs)
            gain = end[2] - value + 0.5 * (jnp.sum(p**2) - jnp.sum(end[1] ** 2))
            # A path that left the numbers is not taken.
            chance = jnp.where(jnp.isfinite(gain), jnp.minimum(jnp.exp(jnp.minimum(gain, 0)), 1), 0)
            take = jr.uniform(key_accept, (), x.dtype) < chance
            new = jax.tree.map(lambda a, b: jnp.where(take, a, b), (end[0], end[2], end[3]), at)
            return new, (new[0], *path, chance)

        keys = jr.split(key, self.burn_in + self.states)
        start = (eps, *slope_of(eps))
        _, (states, path, slopes, chances) = jax.lax.scan(transition, start, keys)
        path, slopes = (x.reshape(-1, eps.shape[0]) for x in (path, slopes))
        return Trajectory(states[self.burn_in :], path, slopes, jnp.mean(chances))


class AbstractChainScore(AbstractScore):
    """A score from one chain for each point; the state is the chains' log step."""

    chain: eqx.AbstractVar[HmcChain]

    @abc.abstractmethod
    def at_one(
        self, generator: Generator, w: Float[Array, " dim"], run: Trajectory
    ) -> Float[Array, " dim"]:
        """The score at one point, from its chain."""

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
            return self.at_one(generator, w, run), run.accepted

        scores, accepted = jax.vmap(one)(w, eps, jr.split(key, w.shape[0]))
        return scores, self.chain.adapted(state, jnp.mean(accepted))


class ChainMean(AbstractChainScore):
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

    def at_one(
        self, generator: Generator, w: Float[Array, " dim"], run: Trajectory
    ) -> Float[Array, " dim"]:
        """The mean over the states."""
        return jnp.mean(jax.vmap(lambda x: generator.conditional_score(w, x))(run.states), axis=0)
