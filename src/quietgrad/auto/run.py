"""What the stages of an automatic fit share: the clock, the journal, and a window with its test."""

import time
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key, PyTree

from .._same import Recipe
from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..loop import Monitor
from ..results import History
from ..samplers import Antithetic
from ..steps import Carry, Job, Keys, strong
from ..targets import Target
from .choose import Choice, burden, candidates, cheapest, choose, name_of
from .journal import FINISH, Decision
from .optimizer import guarded_adam, usual_square
from .settings import AutoSettings
from .windows import Rates, Verdict, compare, run_window

# Seconds that a look at other estimators may take, relative to those of the fit so far.
PROBE_SHARE = 0.1
# The part of the steps and seconds that the way may take.
WAY_SHARE = 0.6
# A round that gains this many times what is worth going on for is drifting.
DRIFT = 2.0


class Place(NamedTuple):
    """Where a stage stands: the job with its estimator, the carry, the best parameters so far."""

    job: Job
    carry: Carry
    answer: PyTree
    step: int

    @property
    def q(self) -> AbstractFamily:
        """The answer as a family."""
        return eqx.combine(self.answer, self.job.static)


class Run(eqx.Module):
    """A fit in progress; its lists grow."""

    target: Target
    settings: AutoSettings
    batch_size: int | None
    fixed: AbstractEstimator | None
    monitor: Monitor | None
    replay: tuple[Decision, ...]
    history: History
    decisions: list[Decision]
    compiling: list[float]

    @property
    def seconds(self) -> float:
        """Seconds of optimisation so far."""
        return self.history["seconds"][-1] if self.history["seconds"] else 0.0

    def over(self, step: int) -> bool:
        """Whether a limit is reached; a replay ends where its record does."""
        if self.replay:
            return step >= self.replay[-1].step
        limit = self.settings.seconds
        return step >= self.settings.steps or (limit is not None and self.seconds >= limit)

    def late(self, step: int) -> bool:
        """Whether what is left should go to the finish; in a replay, whether it went there."""
        if self.replay:
            return all(d.kind in FINISH for d in self.replay if d.step > step)
        limit = self.settings.seconds
        late = limit is not None and self.seconds >= WAY_SHARE * limit
        return late or step >= WAY_SHARE * self.settings.steps

    def affordable(self, step: int, length: int, pace: float) -> int:
        """As many steps as the limits leave at `pace` seconds each, at most `length`.

        In a replay, as many as were taken from here.
        """
        if self.replay:
            return next((d.step - step for d in self.replay if d.step > step), length)
        length = max(1, min(length, self.settings.steps - step))
        if self.settings.seconds is None or pace <= 0:
            return length
        left = max(0.0, self.settings.seconds - self.seconds)
        return max(1, min(length, int(left / pace)))

    def first(self, q: AbstractFamily) -> AbstractEstimator:
        """The estimator to begin with."""
        return cheapest(q) if self.fixed is None else self.fixed

    def place(self, q: AbstractFamily, step: int, *, key: Key[Array, ""]) -> Place:
        """The start of a stage at q."""
        params, static = eqx.partition(q, eqx.is_inexact_array)
        optimizer, estimator = guarded_adam(self.settings.rate), self.first(q)
        keys = Keys(*jr.split(key, 3))
        job = Job(self.target, static, estimator, Recipe(optimizer), self.batch_size, keys)
        state = estimator.init(self.target, q)
        order = jnp.arange(self.target.rows)
        carry = strong(Carry(params, optimizer.init(params), state, order))
        at = Place(job, carry, params, step)
        self.warm_up(at)
        return at

    def warm_up(self, at: Place) -> None:
        """Compile a window and its test, apart from the clock."""
        began = time.perf_counter()
        self.window(at, 0, 0.0, 0.0)
        self.compiling.append(time.perf_counter() - began)

    def check_draws(self, q: AbstractFamily, keys: Keys, step: int) -> Array:
        """Fresh pairs for the test after `step`."""
        shape = (self.settings.check_draws, q.base_dim)
        key = jr.fold_in(keys.evaluation, step)
        return Antithetic().draw(None, q.base, shape, q.dtype, key=key)

    def window(
        self, at: Place, length: int, first: float, last: float
    ) -> tuple[Carry, PyTree, Verdict, float]:
        """Steps, the test at their end, and the seconds of both."""
        e = jax.block_until_ready(self.check_draws(at.q, at.job.keys, at.step))
        began = time.perf_counter()
        span = _span(at.step, at.step + length)
        after, average = run_window(at.job, at.carry, *span, _rates(at.carry, first, last))
        verdict = compare(self.target, at.job.static, average, after.params, at.answer, e)
        return after, average, verdict, time.perf_counter() - began

    def note(
        self, kind: str, step: int, estimator: AbstractEstimator, rate: float, numbers: dict
    ) -> None:
        """Write a decision into the journal."""
        self.decisions.append(Decision(step, kind, name_of(estimator), rate, numbers))

    def record(self, at: Place, spent: float, verdict: Verdict) -> None:
        """Add a test to the history; what the monitor does is off the clock."""
        more = {} if self.monitor is None else self.monitor(at.q, at.carry.estimator, at.step)
        values = {"elbo": verdict.elbo, "elbo_error": verdict.error, **more}
        self.history.add(at.step, spent, values)

    def quieter(self, at: Place, rate: float) -> tuple[Place, float]:
        """The place with a better estimator, if one clearly pays, and how much dearer its step is."""
        found = self._again(at) if self.replay else self._measured(at)
        self.history.extend(found.seconds)
        if found.estimator is None:
            return at, 1.0
        numbers = {"ratio": found.ratio, "cost": found.cost}
        self.note("choose", at.step, found.estimator, rate, numbers)
        job = eqx.tree_at(lambda j: j.estimator, at.job, found.estimator)
        carry = at.carry._replace(estimator=found.estimator.init(self.target, at.q))
        at = at._replace(job=job, carry=carry)
        self.warm_up(at)
        return at, found.cost

    def probe_due(self, at: Place, pace: float, gained: float) -> bool:
        """Whether to look for another estimator: in a long fit once noise is what is left, or where the
        record changed.

        As long as rounds gain much the fit drifts, and dearer steps would slow it down. A look with all
        that it compiles must be a small part of the fit, at `pace` seconds a step.
        """
        if self.replay:
            return any(d.kind == "choose" and d.step == at.step for d in self.replay)
        if self.fixed is not None or self.seconds < self.settings.probe_after:
            return False
        if gained > DRIFT * self.settings.gain:
            return False
        # A candidate compiles as long as a window does, more or less.
        compiling = len(candidates(at.q)) * max(self.compiling, default=0.0)
        look = pace * burden(at.q, at.job.estimator) + compiling
        return look < PROBE_SHARE * self.seconds

    def _again(self, at: Place) -> Choice:
        """What the recorded run chose at this step."""
        chosen = next(d for d in self.replay if d.kind == "choose" and d.step == at.step)
        ratio, cost = chosen.numbers["ratio"], chosen.numbers["cost"]
        return Choice(candidates(at.q)[chosen.estimator], ratio, cost, 0.0)

    def _measured(self, at: Place) -> Choice:
        began = time.perf_counter()
        found = choose(
            self.target,
            at.q,
            at.job.estimator,
            usual_square(at.carry.optimizer),
            self.batch_size,
            by_clock=self.settings.by_clock,
            key=jr.fold_in(at.job.keys.evaluation, 2**31),
        )
        self.compiling.append(time.perf_counter() - began - found.seconds)
        return found


def _rates(carry: Carry, first: float, last: float) -> Rates:
    dtype = carry.optimizer.rate.dtype
    return Rates(jnp.asarray(first, dtype), jnp.asarray(last, dtype))


def _span(first: int, last: int) -> tuple[Array, Array]:
    return jnp.asarray(first, jnp.int32), jnp.asarray(last, jnp.int32)
