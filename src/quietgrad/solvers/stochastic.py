"""Stochastic gradient steps with any estimator and any optax optimiser.

Steps run in chunks. A chunk is a compiled loop whose first and last step are run-time numbers, so a
shorter chunk does not compile again. Step t uses keys folded with t: results do not depend on how steps
are cut into chunks, and a chunk can be replayed.
"""

import functools
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree

from .._util.compiling import program
from .._util.device import on_device
from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..scale.sharding import on_all_devices
from ..session import Candidate, Recorder
from ..session.clock import OPTIMISE
from .choosing import Switching
from .guarded_adam import signal_to_noise
from .solver import AbstractSolver, Feedback, Step
from .steps import Carry, Job, Keys, Late, Optimizer, strong

NON_FINITE = "non-finite"


class StochasticState(NamedTuple):
    """A member, what steps change, how many there were, and what evaluations have seen.

    `optimizer` is the optimiser's state at the last evaluation, `late` the mean of late iterates,
    `probes` the steps at which other estimators are still to be compared. `pace` is in seconds a step.
    """

    like: AbstractFamily
    carry: Carry
    estimator: AbstractEstimator
    probes: tuple[int, ...]
    optimizer: PyTree
    late: Late = Late()
    iterations: int = 0
    evaluated: int = 0
    pace: float = 0.0


class StochasticSteps(AbstractSolver):
    """A chunk of at most `chunk_seconds` a step, and a member every `evaluate_every` steps.

    An `estimator` of None begins with the cheapest that suits the family and is changed for another
    once noise dominates. With `by_clock` no evaluation takes more than its share of the time: some are
    left out. The first chunk has `first_steps`, which tell how long one takes.
    """

    title: ClassVar[str] = "stochastic steps"
    paced: ClassVar[bool] = True

    estimator: AbstractEstimator | None
    optimizer: Optimizer
    steps: int
    evaluate_every: int
    by_clock: bool = True
    switching: Switching = Switching()
    chunk_seconds: float = 1.0
    first_steps: int = 20

    def init(self, session: Recorder, start: Candidate) -> StochasticState:
        """At the start, with a fresh optimiser."""
        target, q = session.problem.target, start.q
        estimator = self.switching.first(q) if self.estimator is None else self.estimator
        session.estimator = estimator
        params = eqx.filter(q, eqx.is_inexact_array)
        carry = Carry(params, self.optimizer.value.init(params), estimator.init(target, q))
        carry = on_all_devices(target, strong(carry))
        probes = self.switching.at(self.steps) if self.estimator is None else ()
        session.progress.plan(start.step, start.step + self.steps, session.clock)
        return StochasticState(q, carry, estimator, probes, carry.optimizer)

    def step(self, session: Recorder, state: StochasticState, feedback: Feedback | None) -> Step:
        """One chunk; ends "non-finite" with the last finite parameters."""
        del feedback
        if state.probes and state.evaluated >= state.probes[0]:
            state = self._switched(session, state)
        first, every = state.iterations, self.evaluate_every
        last = min(self.steps, (first // every + 1) * every)
        # Several processes must cut their steps at the same places, whatever their clocks say.
        if jax.process_count() == 1:
            most = int(self.chunk_seconds / state.pace) if state.pace > 0 else self.first_steps
            last = min(last, first + max(1, most))
        job = self._job(session, state)
        carry, reached, pace = _chunk(job, state.carry, first, last, session)
        state = state._replace(carry=carry, iterations=reached, pace=pace)
        if reached < last:
            return Step((), state, reached, end=NON_FINITE)
        affordable = not self.by_clock or session.can_evaluate()
        if not (last == self.steps or (last % every == 0 and affordable)):
            return Step((), state, last)
        session.progress.signal = functools.partial(signal_to_noise, state.optimizer, carry.optimizer)
        late = state.late.after(carry.params)
        state = state._replace(late=late, optimizer=carry.optimizer, evaluated=last)
        return Step((job.family(carry),), state, last, carry.estimator)

    def late_mean(self, state: StochasticState) -> AbstractFamily | None:
        """The member at the mean of late iterates; None of too few evaluations."""
        mean = state.late.mean(state.carry.params)
        static = eqx.filter(state.like, eqx.is_inexact_array, inverse=True)
        return None if mean is None else eqx.combine(mean, static)

    def _job(self, session: Recorder, state: StochasticState) -> Job:
        problem = session.problem
        static = eqx.filter(state.like, eqx.is_inexact_array, inverse=True)
        keys = Keys(session.seed("draws"), session.seed("rows"))
        return Job(problem.target, static, state.estimator, self.optimizer, problem.batch_size, keys)

    def _switched(self, session: Recorder, state: StochasticState) -> StochasticState:
        """The state with another estimator, if noise dominates and one has less variance x cost."""
        q = self._job(session, state).family(state.carry)
        found = self.switching(session, q, state.estimator, state.evaluated, by_clock=self.by_clock)
        state = state._replace(probes=tuple(p for p in state.probes if p > state.evaluated))
        if found is None:
            return state
        session.estimator, target = found, session.problem.target
        fresh = on_all_devices(target, strong(found.init(target, q)))
        return state._replace(estimator=found, carry=state.carry._replace(estimator=fresh))


def _chunk(job: Job, carry: Carry, first: int, last: int, session: Recorder) -> tuple[Carry, int, float]:
    """The carry after the last finite step, that step, and seconds a step."""
    clock = session.clock
    began, pace = clock.spent(OPTIMISE), 0.0
    for piece, begin, end in session.problem.pieces(job, first, last):
        after, finite = jax.block_until_ready(_run(piece, carry, *_span(begin, end)))
        pace = (clock.spent(OPTIMISE) - began) / max(1, end - first)
        if not finite:
            carry, reached = _replay(piece, carry, *_span(begin, end))
            return carry, int(reached), pace
        carry = after
    return carry, last, pace


@program
def _run(
    job: Job, carry: Carry, first: Int[Array, ""], last: Int[Array, ""]
) -> tuple[Carry, Bool[Array, ""]]:
    """Steps first, ..., last - 1, and whether the parameters are finite after them."""
    carry = jax.lax.fori_loop(first, last, lambda t, c: job.step(c, t), carry)
    return carry, _finite(carry.params)


@program
def _replay(
    job: Job, carry: Carry, first: Int[Array, ""], last: Int[Array, ""]
) -> tuple[Carry, Int[Array, ""]]:
    """Run a chunk again up to its last finite parameters; also the number of steps that led there."""

    def going(loop: tuple[Array, Carry, Carry]) -> Bool[Array, ""]:
        t, _, ahead = loop
        return (t < last) & _finite(ahead.params)

    def move(loop: tuple[Array, Carry, Carry]) -> tuple[Array, Carry, Carry]:
        t, _, ahead = loop
        return t + 1, ahead, job.step(ahead, t + 1)

    _, carry, _ = out = jax.lax.while_loop(going, move, (first, carry, job.step(carry, first)))
    return carry, out[0]


def _finite(params: PyTree) -> Bool[Array, ""]:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(params)]))


def _span(first: int, last: int) -> tuple[Int[Array, ""], Int[Array, ""]]:
    return on_device(first, np.int32), on_device(last, np.int32)
