"""The contract of a move of the chains: one step of each, at fixed parameters."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key, PyTree

from ..problem import AbstractEnergy


class Chains(NamedTuple):
    """Where chains are, the energies and their gradients there, and the log of the step size."""

    x: Float[Array, "chains dim"]
    energy: Float[Array, " chains"]
    slope: Float[Array, "chains dim"]
    log_step: Float[Array, ""]


class Proposal(NamedTuple):
    """A Langevin step of every chain, and the log of the Metropolis ratio."""

    chains: Chains
    log_ratio: Float[Array, " chains"]


class AbstractMove(eqx.Module):
    """A move, and how its step size is found. Sizes are in units of the rows' deviations."""

    @property
    @abc.abstractmethod
    def adjusted(self) -> bool:
        """Whether p is left exactly as it is."""

    @abc.abstractmethod
    def start(self, dim: int) -> float:
        """The step size to begin with."""

    @abc.abstractmethod
    def __call__(
        self,
        model: AbstractEnergy,
        params: PyTree,
        chains: Chains,
        scale: Float[Array, " dim"],
        *,
        adapt: bool,
        key: Key[Array, ""],
    ) -> tuple[Chains, Float[Array, ""]]:
        """The chains one step on, and the share of steps that were accepted, or would have been."""


def placed(
    model: AbstractEnergy, params: PyTree, x: Float[Array, "chains dim"], log_step: Float[Array, ""]
) -> Chains:
    """Chains at these points."""
    return Chains(x, *model.slope(params, x), log_step)


def moved(
    move: AbstractMove,
    model: AbstractEnergy,
    params: PyTree,
    chains: Chains,
    scale: Float[Array, " dim"],
    count: int,
    *,
    adapt: bool,
    key: Key[Array, ""],
) -> tuple[Chains, Float[Array, ""]]:
    """`count` moves, and the mean acceptance."""

    def one(chains: Chains, key: Key[Array, ""]) -> tuple[Chains, Float[Array, ""]]:
        return move(model, params, chains, scale, adapt=adapt, key=key)

    chains, accepted = jax.lax.scan(one, chains, jr.split(key, count))
    return chains, jnp.mean(accepted)


def propose(
    model: AbstractEnergy,
    params: PyTree,
    chains: Chains,
    scale: Float[Array, " dim"],
    *,
    key: Key[Array, ""],
) -> Proposal:
    """x' = x - h/2 S^2 grad E + sqrt(h) S e with S the scale, and log p(x') q(x|x') / p(x) q(x'|x)."""
    step, wide = jnp.exp(chains.log_step), scale[None, :]
    e = jr.normal(key, chains.x.shape, chains.x.dtype)
    there = chains.x + wide * (step * e - 0.5 * step**2 * wide * chains.slope)
    after = placed(model, params, there, chains.log_step)
    back = -e + 0.5 * step * wide * (chains.slope + after.slope)
    ratio = chains.energy - after.energy + 0.5 * jnp.sum(e**2 - back**2, axis=1)
    return Proposal(after, jnp.where(jnp.isfinite(ratio), ratio, -jnp.inf))


def chosen(take: Array, new: Chains, old: Chains) -> Chains:
    """The new places of the chains that take them."""
    return Chains(
        jnp.where(take[:, None], new.x, old.x),
        jnp.where(take, new.energy, old.energy),
        jnp.where(take[:, None], new.slope, old.slope),
        old.log_step,
    )


def adapted(
    chains: Chains, accepted: Float[Array, ""], wanted: float, rate: float, *, adapt: bool
) -> Chains:
    """Larger steps where more is accepted than wanted, smaller ones where less is."""
    if not adapt:
        return chains
    # In units of how much more there could be accepted, which is little where nearly all is wanted.
    change = (rate * (accepted - wanted) / (1 - wanted)).astype(chains.log_step.dtype)
    return chains._replace(log_step=chains.log_step + change)
