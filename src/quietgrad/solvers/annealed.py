"""Annealing: rounds of stochastic steps whose rate decays to nothing, each twice as long as the last.

A round ends with a small rate, so its last iterates are as good as its first rate and its length allow.
Both its last iterate and the average over it are proposed. A round that clearly lost is taken back and
the rate halved; where the family allows longer strides, a round that did not doubles it.
"""

import functools
import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, PyTree

from .._util.device import on_device
from .._util.random import key_of
from ..estimators import AbstractEstimator
from ..families import AbstractFamily
from ..scale.sharding import on_all_devices
from ..session import Candidate, Recorder
from ..session.clock import COMPILE, OPTIMISE
from .choosing import burden, candidates, cheapest, choose
from .driver import Run
from .guarded_adam import guarded_adam, signal_to_noise, usual_square
from .solver import AbstractSolver, Feedback, Step
from .steps import Carry, Job, Keys, Optimizer
from .windows import Rates, fresh_optimizer, in_form_of, no_sums, run_window

LOST = "lost"


@functools.cache
def optimizer() -> Optimizer:
    """One for all rounds, so that it need not be read."""
    return Optimizer(guarded_adam(0.0), "guarded adam")


class AnnealedState(NamedTuple):
    """A member, parameters and moments after the last round and before it; the next round's settings.

    `lost` and `walls` count rounds in a row that were taken back, and those of them that ran into points
    where the density is not finite. `pace` is in seconds a step.
    """

    like: AbstractFamily
    carry: Carry
    before: Carry
    estimator: AbstractEstimator
    rate: float
    most_rate: float
    length: int
    iterations: int = 0
    pace: float = 0.0
    lost: int = 0
    walls: int = 0
    probed: bool = False


class Annealed(AbstractSolver):
    """One round at a time: Adam, from `rate` down to `end` of it, `length` steps in the first round.

    A rate of None is what the family advises: `near` a solution that is almost right, `far` from any,
    both for a start of unknown quality, where rounds that gain raise the rate. Rounds grow by `growth`;
    after `most_lost` losses in a row steps of every size lose. `most_steps` bound all rounds. An
    `estimator` of None begins with the cheapest that suits the family; in a long fit, once rounds gain
    less than `drifting` times `gain`, the candidates are measured and the one with the least variance
    times cost takes over, if finding out takes at most `probe_share` of the time so far (of the steps,
    if not `by_clock`) and `probe_after` seconds of optimisation have passed.
    """

    title: ClassVar[str] = "annealed steps"

    estimator: AbstractEstimator | None = None
    rate: float | None = None
    near: bool = False
    far: bool = False
    end: float = 0.01
    length: int = 500
    growth: float = 2.0
    most_lost: int = 8
    most_steps: int = 200_000
    gain: float = 0.5
    by_clock: bool = True
    probe_after: float = 2.0
    probe_share: float = 0.1
    drifting: float = 2.0

    def init(self, session: Recorder, start: Candidate) -> AnnealedState:
        """At the start, with fresh moments."""
        q, target = start.q, session.problem.target
        estimator = cheapest(q) if self.estimator is None else self.estimator
        params = eqx.filter(q, eqx.is_inexact_array)
        carry = Carry(params, fresh_optimizer(params), estimator.init(target, q))
        carry = on_all_devices(target, carry)
        session.estimator = estimator
        return AnnealedState(q, carry, carry, estimator, *self._rates(q), self.length)

    def step(self, session: Recorder, state: AnnealedState, feedback: Feedback | None) -> Step:
        """One round, at the rate and of the length that the last one's outcome suggests."""
        if feedback is not None:
            state = self._after(session, state, feedback)
            if state.lost >= self.most_lost:
                return Step((), state, state.iterations, end=LOST)
        if feedback is not None and self._probe_due(session, state, feedback):
            state = self._probed(session, state, feedback.best.q)
        static = eqx.filter(state.like, eqx.is_inexact_array, inverse=True)
        state, average = self._round(session, state, static)
        members = eqx.combine(average, static), eqx.combine(state.carry.params, static)
        return Step(members, state, state.iterations, state.carry.estimator)

    def _after(self, session: Recorder, state: AnnealedState, feedback: Feedback) -> AnnealedState:
        """What the last round's outcome means for the next one."""
        nats, error = feedback.change
        params = eqx.filter(feedback.best.q, eqx.is_inexact_array)
        finite = math.isfinite(feedback.found.terms.elbo)
        if not finite or feedback.change.clearly_below():
            session.note("take back", gain=nats, error=error, rate=state.rate / 2)
            # The momentum of the lost round goes with it.
            return state._replace(
                carry=state.before._replace(params=params),
                rate=state.rate / 2,
                most_rate=state.rate / 2,
                lost=state.lost + 1,
                walls=state.walls + (not finite),
            )
        rate = min(2 * state.rate, state.most_rate)
        session.note("round", gain=nats, error=error, rate=rate)
        return state._replace(
            carry=state.carry._replace(params=params),
            rate=rate,
            length=int(self.growth * state.length),
            lost=0,
        )

    def _round(
        self, session: Recorder, state: AnnealedState, static: PyTree
    ) -> tuple[AnnealedState, PyTree]:
        """The state after a round, and the average of its iterates."""
        clock, problem, first = session.clock, session.problem, state.iterations
        length = max(1, min(state.length, self.most_steps - first))
        if state.pace > 0 and math.isfinite(session.left()):
            length = max(1, min(length, int(session.left() / state.pace)))
        keys = Keys(session.seed("anneal draws"), session.seed("anneal rows"))
        job = Job(problem.target, static, state.estimator, optimizer(), problem.batch_size, keys)
        carry = average = state.carry
        rates = (state.rate, self.end * state.rate)
        rates = Rates(*(on_device(rate, carry.optimizer.rate.dtype) for rate in rates))
        began, sums = clock.spent(OPTIMISE), no_sums(carry.params)
        offset = session.steps
        span = _span(offset, offset + length)
        for piece, begin, end in problem.pieces(job, offset, offset + length):
            carry, sums, average = run_window(piece, carry, sums, _span(begin, end), span, rates)
        jax.block_until_ready(carry.params)
        session.progress.signal = functools.partial(
            signal_to_noise, state.carry.optimizer, carry.optimizer
        )
        pace = (clock.spent(OPTIMISE) - began) / length
        after = state._replace(
            carry=carry, before=state.carry, iterations=first + length, length=length, pace=pace
        )
        return after, average

    def _rates(self, q: AbstractFamily) -> tuple[float, float]:
        """The first rate, and what successful rounds may raise it to."""
        if self.rate is not None:
            return self.rate, self.rate
        advice = q.advice
        if self.near:
            return advice.near_rate, advice.explore_rate if self.far else advice.near_rate
        if self.far:
            return advice.explore_rate, advice.explore_rate
        return advice.anneal_rate, advice.most_anneal_rate

    def _probe_due(self, session: Recorder, state: AnnealedState, feedback: Feedback) -> bool:
        """Whether to compare estimators: in a long fit, once noise is what is left.

        As long as rounds gain much, dearer steps would slow the fit down. A comparison with all that it
        compiles must be a small part of the fit: of its seconds, or of its steps if not by the clock.
        """
        drifting = feedback.change.clearly_above(self.drifting * self.gain)
        if self.estimator is not None or state.probed or drifting:
            return False
        q, clock = feedback.best.q, session.clock
        steps = burden(q, state.estimator)
        if not self.by_clock:
            return steps < self.probe_share * session.steps
        spent = clock.spent(OPTIMISE)
        if spent < self.probe_after:
            return False
        # A candidate compiles about as long as the programs so far did on average.
        compiling = len(candidates(q)) * clock.spent(COMPILE) / max(1, clock.programs)
        return state.pace * steps + compiling < self.probe_share * spent

    def _probed(self, session: Recorder, state: AnnealedState, q: AbstractFamily) -> AnnealedState:
        """The state with a better estimator, if one clearly pays."""
        problem, carry = session.problem, state.carry
        found = choose(
            problem.target,
            q,
            state.estimator,
            in_form_of(carry.params, usual_square(carry.optimizer)),
            problem.batch_size,
            by_clock=self.by_clock,
            key=key_of(session.seed("choose")),
        )
        state = state._replace(probed=True)
        if found.estimator is None:
            return state
        numbers = {"ratio": found.ratio, "cost": found.cost, "rate": state.rate}
        session.note("choose", estimator=found.estimator, **numbers)
        session.estimator = found.estimator
        fresh = on_all_devices(problem.target, found.estimator.init(problem.target, q))
        return state._replace(
            estimator=found.estimator,
            carry=carry._replace(estimator=fresh),
            # As much time for a round as before: dearer steps are fewer.
            length=max(self.length, int(state.length / found.cost)),
            pace=state.pace * found.cost,
        )


def _span(first: int, last: int) -> tuple[Array, Array]:
    return on_device(first, np.int32), on_device(last, np.int32)


def why_enough(run: Run) -> str:
    """Why rounds ended, and what another one could gain at most."""
    hint = "the last round of steps gained too little to be worth another"
    if run.feedback is None:
        return hint
    return f"{hint}: {run.feedback.change}, and one twice as long at most about {run.ahead:.2g} nats"


def why_exhausted(run: Run, *, batches: bool) -> str:
    """What is known of rounds that used up their steps, and what to give."""
    hint = f"the steps, {run.best.step:,}, were used up"
    if run.feedback is not None:
        change, rising = run.feedback.change, run.feedback.change.clearly_above()
        last = "still rising" if rising else "too noisy to tell whether the ELBO still rises"
        hint += f", {last}: the last round gained {change}"
    more = "more steps, or a larger batch_size" if batches else "more steps"
    return f"{hint}; give {more}"
