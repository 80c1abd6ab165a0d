"""quiet: the least noisy of four estimators, measured while the fit runs.

Antithetic pairs silence what is odd in the draw, such as the gradient of a location, and double the
noise of what is even, such as that of a triangle or of factors. Sticking the landing (STL) silences
everything where q is the posterior, and adds the noise of q's score where it is not. So which of the
four combinations has the least variance depends on the family, the target and how far the fit has come.
With the half sum E and the half difference O of the gradients at a draw and at its mirror image,
  L independent draws have variance (Var E + Var O) / L,    L/2 pairs have 2 Var E / L,
both with the closed (or sampled) entropy and with STL. A few pairs of their own estimate all four.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from .._numerics.lapack import over_points
from .._util.checks import whole
from ..families import AbstractFamily
from ..targets import Target
from . import entropy, samplers
from .estimator import AbstractEstimator, Estimate
from .pathwise import Pathwise, PathwiseState

# Pairs of a look at the variances, and the steps from one look to the next, after denser ones at the
# start (steps 0, 1, 2, 4, ...). They are an eighth of a gradient a step.
PAIRS, EVERY = 4, 64
# The share of a new look in the averages. Four pairs see a ratio of variances to about a third of it;
# six probes, which an average with this share is worth, to about a seventh.
SHARE = 0.3
# A look can say at most this of an estimator: one rare, huge draw must not be remembered for long.
MOST = 4.0
# Folded into the key for the probes' own draws: a count that the step's draws never reach.
LOOK = 2**32 - 2


class QuietState(NamedTuple):
    """Steps and probes so far, and the averaged variances relative to the plain estimator's.

    In the order: independent draws without and with STL, pairs without and with STL.
    """

    steps: Int[Array, ""]
    probes: Int[Array, ""]
    ratios: Float[Array, "4"]

    @property
    def stick(self) -> Bool[Array, ""]:
        """Whether the best of them sticks the landing."""
        return jnp.argmin(self.ratios) % 2 == 1

    @property
    def paired(self) -> Bool[Array, ""]:
        """Whether the best of them has pairs."""
        return jnp.argmin(self.ratios) >= 2


class Quiet(AbstractEstimator):
    """Pairs or independent draws, STL or not: whichever has the least variance so far. Unbiased.

    The choice is made from draws of its own, never from those of the step. Once some probes have been
    averaged its variance (trace) is not above that of the plain estimator with as many draws, up to the
    error of the averages. By default 2 draws a step, 10 for flows and low-rank families. Cost of a
    step: `draws` gradients of the target and one backward pass; 8 more gradients every 64 steps. An odd
    number of draws is never paired.
    """

    draws: int | None = eqx.field(static=True)

    def __init__(self, draws: int | None = None):
        self.draws = None if draws is None else whole(draws, "draws", least=1)

    @property
    def biased(self) -> bool:
        """Never."""
        return False

    def variance_bound(self, q: AbstractFamily) -> float:
        """One: the plain estimator is among those it chooses from."""
        del q
        return 1.0

    def draws_for(self, q: AbstractFamily) -> int:
        """The draws asked for, or the family's default."""
        return q.advice.quiet_draws if self.draws is None else self.draws

    def refuses(self, target: Target, q: AbstractFamily) -> str | None:
        """Nothing: what the four need, every family has."""
        del target, q
        return None

    def _init(self, target: Target, q: AbstractFamily) -> QuietState:
        del target
        zero = jnp.zeros((), jnp.int32)
        # The plain estimator, should no look ever be finite.
        return QuietState(zero, zero, jnp.asarray([1.0, MOST, MOST, MOST], q.dtype))

    def step(
        self, target: Target, q: AbstractFamily, state: QuietState, *, key: Key[Array, ""]
    ) -> tuple[Estimate, QuietState]:
        """A look if one is due, then a step of the chosen pathwise estimator."""
        steps = state.steps
        due = (steps % EVERY == 0) | ((steps & (steps - 1)) == 0)
        state = jax.lax.cond(
            due, lambda: self._look(target, q, state, jr.fold_in(key, LOOK)), lambda: state
        )
        state = state._replace(steps=steps + 1)
        inside = Pathwise(
            sampler=samplers.Chosen(state.paired),
            entropy=entropy.Chosen(state.stick),
            draws=self.draws_for(q),
        )
        return inside.step(target, q, PathwiseState(None, None), key=key)[0], state

    def _look(
        self, target: Target, q: AbstractFamily, state: QuietState, key: Key[Array, ""]
    ) -> QuietState:
        seen = relative_variances(target, q, key=key)
        if self.draws_for(q) % 2:
            seen = seen.at[2:].set(MOST)
        good = jnp.all(jnp.isfinite(seen))
        probes = state.probes + good
        share = jnp.where(good, jnp.maximum(1 / jnp.maximum(probes, 1), SHARE), 0).astype(seen.dtype)
        change = jnp.where(good, jnp.minimum(seen, MOST) - state.ratios, 0)
        return state._replace(probes=probes, ratios=state.ratios + share * change)


def relative_variances(target: Target, q: AbstractFamily, *, key: Key[Array, ""]) -> Float[Array, "4"]:
    """Variances at equal draws, from `PAIRS` pairs, over that of independent draws without STL.

    In the order of `QuietState`. 2 `PAIRS` gradients of the target, and four backward passes a pair.
    """
    e = q.base.sample((PAIRS, q.base_dim), q.dtype, key=key)

    def pair(draw: Float[Array, " base"]) -> tuple[Any, Any]:
        both = jnp.stack([draw, -draw])
        paths = [entropy.Chosen(jnp.asarray(stick)).path(q, both) for stick in (False, True)]
        slope = over_points(jax.grad(target.log_density), paths[0].z)
        half = jnp.full(2, 0.5, q.dtype)
        evens = [path.pull_back(slope, half) for path in paths]
        odds = [path.pull_back(slope, half * jnp.asarray([1, -1], q.dtype)) for path in paths]
        return evens, odds

    def add(sums: tuple, draw: Float[Array, " base"]) -> tuple[tuple, None]:
        mean, squares, count = sums
        evens, odds = pair(draw)
        # Welford's update: deviations from the mean so far and from the one after.
        count = count + 1
        after = jax.tree.map(lambda m, x: m + (x - m) / count, mean, evens)
        even = jnp.stack(
            [_dot(_minus(x, m), _minus(x, a)) for x, m, a in zip(evens, mean, after, strict=True)]
        )
        odd = jnp.stack([_dot(x, x) for x in odds])
        return (after, squares + jnp.stack([even, odd]), count), None

    zero = jax.tree.map(jnp.zeros_like, eqx.filter(q, eqx.is_inexact_array))
    start = [zero, zero], jnp.zeros((2, 2), q.dtype), jnp.zeros((), q.dtype)
    (_, (even, odd), _), _ = jax.lax.scan(add, start, e)
    # The mean of the half sums is estimated; that of the half differences is zero.
    even, odd = even / (PAIRS - 1), odd / PAIRS
    independent, paired = even + odd, 2 * even
    return jnp.concatenate([independent, paired]) / independent[0]


def _minus(a: PyTree, b: PyTree) -> PyTree:
    return jax.tree.map(jnp.subtract, a, b)


def _dot(a: PyTree, b: PyTree) -> Float[Array, ""]:
    parts = [jnp.sum(x * y) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True)]
    return jnp.sum(jnp.stack(parts))
