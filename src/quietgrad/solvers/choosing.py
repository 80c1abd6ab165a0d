"""Which estimator once noise dominates: the least variance x cost, in the optimiser's norm.

Near the optimum the noise of the fit is proportional to the gradient's variance and falls with the
number of steps taken, so what counts is variance times the cost of a step. The variance is taken in
Adam's norm, sum_i Var(g_i) / E g_i^2: the bare trace would speak of a few large coordinates only. With
minibatches both share the rows' noise, which more draws cannot remove.

`Switching` is `estimator="auto"` under the user's optimiser. A few times during the run the present
estimator's gradient is drawn some times over. As long as its mean stands out from its spread the run is
drifting, and the cheapest step is the right one. Once it does not, the candidates are measured and the
one with the least variance x cost takes over.
"""

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key, PyTree

from .. import estimators
from .._util.compiling import program
from .._util.random import key_of
from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..session import Recorder
from ..targets import Target

# Gradients of each candidate in each of its turns.
REPEATS, TURNS = 24, 3
# The ratio of variance x cost below which a change pays; above, it is within the error of measuring it.
WORTH = 0.6
TINY = 1e-12


# Estimators that suit a family, by name.
Candidates = Callable[[AbstractFamily], Mapping[str, AbstractEstimator]]


class Choice(NamedTuple):
    """The estimator to change to, None to stay; its variance x cost and its cost over those of the
    present one."""

    estimator: AbstractEstimator | None
    ratio: float
    cost: float


def cheapest(q: AbstractFamily) -> "estimators.Pathwise":
    """The estimator to begin with: as few quiet draws as lead anywhere, which the family knows."""
    advice = q.advice
    draws, entropy = advice.search_draws, advice.search_entropy
    first = estimators.Pathwise(sampler=advice.search_sampler, entropy=entropy, draws=draws)
    if first.sampler.refuses(draws, q.base, q.base_dim) is None:
        return first
    return estimators.Pathwise(sampler="antithetic", entropy=entropy, draws=draws)


def candidates(q: AbstractFamily) -> "dict[str, estimators.Pathwise]":
    """What auto chooses from, by name."""
    base, make = cheapest(q), estimators.Pathwise
    few, many = base.draws, 4 * base.draws
    field = [
        base,
        make(sampler=base.sampler, entropy="stl", draws=few),
        make(sampler=base.sampler, entropy="sampled", draws=few),
        make(sampler=base.sampler, entropy=base.entropy, draws=many),
        make(sampler="rqmc", entropy="stl", draws=few),
        make(sampler="rqmc", entropy="stl", draws=many),
        estimators.estimator("quiet-stein", draws=many),
    ]
    allowed = (e for e in field if e.sampler.refuses(e.draws, q.base, q.base_dim) is None)
    return {estimator.title: estimator for estimator in allowed}


def burden(q: AbstractFamily, current: AbstractEstimator) -> float:
    """Steps of the present estimator that measuring all candidates takes."""
    draws = sum(estimator.draws_for(q) for estimator in candidates(q).values())
    return REPEATS * TURNS * (1 + draws / current.draws_for(q))


def choose(
    target: Target,
    q: AbstractFamily,
    current: AbstractEstimator,
    square: PyTree,
    batch_size: int | None,
    *,
    by_clock: bool,
    among: Candidates = candidates,
    key: Key[Array, ""],
) -> Choice:
    """The least variance x cost at q `among` some, if it is clearly less than that of `current`."""
    field = {current.title: current, **among(q)}
    variance, cost = measure(target, q, field, square, batch_size, by_clock=by_clock, key=key)
    best, now = min(field, key=lambda name: variance[name] * cost[name]), current.title
    dearer = cost[best] / cost[now]
    ratio = variance[best] / variance[now] * dearer
    if not ratio < WORTH:
        return Choice(None, 1.0, 1.0)
    return Choice(field[best], ratio, dearer)


class Moments(NamedTuple):
    """Of an estimator's gradient: each coordinate's mean square, and the share of it that is the mean's
    own (averaged over coordinates)."""

    square: PyTree
    signal: float


def moments(
    target: Target,
    q: AbstractFamily,
    estimator: AbstractEstimator,
    batch_size: int | None,
    *,
    key: Key[Array, ""],
) -> Moments:
    """The gradient at q, drawn `REPEATS` times."""
    count = jnp.asarray(REPEATS, jnp.int32)
    first, second, _ = _sums(target, q, estimator, batch_size, count, key)
    mean = jax.tree.map(lambda s: s / REPEATS, first)
    square = jax.tree.map(lambda s: s / REPEATS, second)
    # The squared mean of n draws holds 1/n of the variance.
    own = jax.tree.map(lambda m, s: (REPEATS * m**2 - s) / (REPEATS - 1), mean, square)
    shares = jax.tree.map(lambda o, s: jnp.sum(o / (s + TINY)), own, square)
    total = sum(leaf.size for leaf in jax.tree.leaves(square))
    return Moments(square, float(sum(jax.tree.leaves(shares)) / total))


def measure(
    target: Target,
    q: AbstractFamily,
    field: Mapping[str, AbstractEstimator],
    square: PyTree,
    batch_size: int | None,
    *,
    by_clock: bool,
    key: Key[Array, ""],
) -> tuple[dict[str, float], dict[str, float]]:
    """Variance and cost of every candidate at q.

    The cost is that of a step in seconds, the least of some turns, or its gradient evaluations if not
    by the clock.
    """
    count = jnp.asarray(REPEATS, jnp.int32)
    for estimator in field.values():
        jax.block_until_ready(_noise(target, q, estimator, square, batch_size, 0 * count, key))
    variance, cost = dict.fromkeys(field, 0.0), dict.fromkeys(field, float("inf"))
    for turn in range(TURNS):
        key_turn = jr.fold_in(key, turn)
        for name, estimator in field.items():
            began = time.perf_counter()
            noise, evaluations = _noise(target, q, estimator, square, batch_size, count, key_turn)
            variance[name] += float(noise) / TURNS
            seconds = time.perf_counter() - began
            cost[name] = min(cost[name], seconds) if by_clock else float(evaluations)
    return variance, cost


@program
def _noise(
    target: Target,
    q: AbstractFamily,
    estimator: AbstractEstimator,
    square: PyTree,
    batch_size: int | None,
    count: Int[Array, ""],
    key: Key[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The variance over `count` gradients in the norm of `square`, and their gradient evaluations."""
    first, second, evaluations = _sums(target, q, estimator, batch_size, count, key)
    several = jnp.maximum(count, 2).astype(q.dtype)

    def spread(first: Array, second: Array, usual: Array) -> Array:
        return jnp.sum((second - first**2 / several) / (several - 1) / (usual + TINY))

    total = jnp.stack(jax.tree.leaves(jax.tree.map(spread, first, second, square))).sum()
    return total, evaluations


@program
def _sums(
    target: Target,
    q: AbstractFamily,
    estimator: AbstractEstimator,
    batch_size: int | None,
    count: Int[Array, ""],
    key: Key[Array, ""],
) -> tuple[PyTree, PyTree, Float[Array, ""]]:
    """Sums of `count` gradients, of their squares, and of their gradient evaluations."""
    state = estimator._init(target, q)

    def add(t: Int[Array, ""], sums: tuple[PyTree, PyTree, Array]) -> tuple[PyTree, PyTree, Array]:
        key_rows, key_step = jr.split(jr.fold_in(key, t))
        view = target
        if batch_size is not None:
            # With replacement: drawing without it would shuffle all rows for each gradient.
            view = target.batch(jr.randint(key_rows, (batch_size,), 0, target.rows))
        estimate, _ = estimator.step(view, q, state, key=key_step)
        first = jax.tree.map(jnp.add, sums[0], estimate.grad)
        second = jax.tree.map(lambda s, g: s + g**2, sums[1], estimate.grad)
        return first, second, sums[2] + jnp.asarray(estimate.cost.gradients, float)

    zero = jax.tree.map(jnp.zeros_like, eqx.filter(q, eqx.is_inexact_array))
    return jax.lax.fori_loop(0, count, add, (zero, zero, jnp.zeros((), float)))


class Switching(eqx.Module):
    """Probes at `fractions` of a run: early, and ever less often, because each costs some steps.

    Momentum averages about `averaged` gradients (Adam's decay of 0.9), so that noise dominates where
    the signal's share of one gradient's square is below 1 / `averaged`. A run begins with `first`, and
    then chooses among `candidates`.
    """

    fractions: tuple[float, ...] = (0.05, 0.1, 0.2, 0.4)
    averaged: float = 10.0
    first: Callable[[AbstractFamily], AbstractEstimator] = eqx.field(default=cheapest, static=True)
    candidates: Candidates = eqx.field(default=candidates, static=True)

    def at(self, steps: int) -> tuple[int, ...]:
        """The steps at which a run is probed."""
        return tuple(int(fraction * steps) for fraction in self.fractions)

    def __call__(
        self,
        session: Recorder,
        q: AbstractFamily,
        estimator: AbstractEstimator,
        step: int,
        *,
        by_clock: bool,
    ) -> AbstractEstimator | None:
        """The estimator to change to, None to stay."""
        problem = session.problem
        key_noise, key_choose = jr.split(jr.fold_in(key_of(session.seed("switch")), step))
        found = moments(problem.target, q, estimator, problem.batch_size, key=key_noise)
        if self.averaged * found.signal > 1:
            session.note("drift", estimator=estimator, signal=found.signal)
            return None
        choice = choose(
            problem.target,
            q,
            estimator,
            found.square,
            problem.batch_size,
            by_clock=by_clock,
            among=self.candidates,
            key=key_choose,
        )
        if choice.estimator is None:
            session.note("stay", estimator=estimator, signal=found.signal)
            return None
        numbers = {"signal": found.signal, "ratio": choice.ratio, "cost": choice.cost}
        session.note("choose", estimator=choice.estimator, **numbers)
        return choice.estimator
