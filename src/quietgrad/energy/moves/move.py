"""The contract of a move of the chains: one step of each, at fixed parameters."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Key, PyTree

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


class Moved(NamedTuple):
    """One step: where chains are after it, the share of steps accepted, and what was proposed.

    `chance` is the probability of going to the proposal, and `taken` whether a chain went.
    """

    chains: Chains
    accepted: Float[Array, ""]
    proposed: Chains
    chance: Float[Array, " chains"]
    taken: Bool[Array, " chains"]


class Recycled(NamedTuple):
    """Every point at which a chain had its gradient, with the mass that Metropolis' rule gives it.

    From x with the proposal x' and the chance a, a step gives the mass a to x' and 1 - a to x, whatever
    was drawn: the weighted mean over a stationary chain's points is unbiased (Frenkel 2004, "waste
    recycling"). Masses sum to one.
    """

    x: Float[Array, "points dim"]
    slope: Float[Array, "points dim"]
    mass: Float[Array, " points"]


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
    ) -> Moved:
        """One step; the share accepted is that of a test, also where there is none."""


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
        return move(model, params, chains, scale, adapt=adapt, key=key)[:2]

    chains, accepted = jax.lax.scan(one, chains, jr.split(key, count))
    return chains, jnp.mean(accepted)


def recycled(
    move: AbstractMove,
    model: AbstractEnergy,
    params: PyTree,
    chains: Chains,
    scale: Float[Array, " dim"],
    count: int,
    *,
    adapt: bool,
    key: Key[Array, ""],
) -> tuple[Chains, Float[Array, ""], Recycled]:
    """`count` moves as by `moved`, and all their points: the starts and every proposal."""

    def one(carry: tuple, given: tuple) -> tuple[tuple, tuple]:
        chains, own = carry
        number, key = given
        step = move(model, params, chains, scale, adapt=adapt, key=key)
        # Points outside the numbers, which no chain goes to, are replaced by where the chain is.
        tried = chosen(finite(step.proposed), step.proposed, chains)
        found = (tried.x, tried.slope, step.chance, own)
        return (step.chains, jnp.where(step.taken, number, own)), (step.accepted, found)

    first = jnp.zeros(chains.x.shape[0], jnp.int32)
    numbers = jnp.arange(1, count + 1, dtype=jnp.int32)
    (after, _), (accepted, found) = jax.lax.scan(one, (chains, first), (numbers, jr.split(key, count)))
    x, slope, chance, own = found
    # own[k] is the number of the point that a chain is at before move k; 0 is its start.
    stayed = jnp.sum(
        jnp.where(own[:, None] == jnp.arange(count + 1)[None, :, None], 1 - chance[:, None], 0), axis=0
    )
    mass = (stayed.at[1:].add(chance) / chance.size).astype(x.dtype)
    x, slope = (jnp.concatenate([a[None], b]) for a, b in ((chains.x, x), (chains.slope, slope)))
    dim = x.shape[-1]
    points = Recycled(x.reshape(-1, dim), slope.reshape(-1, dim), mass.reshape(-1))
    return after, jnp.mean(accepted), points


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


def finite(chains: Chains) -> Bool[Array, " chains"]:
    """Whether energy and gradient are numbers."""
    return jnp.isfinite(chains.energy) & jnp.all(jnp.isfinite(chains.slope), axis=1)


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
