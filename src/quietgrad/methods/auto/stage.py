"""A stage of stochastic steps in an automatic fit: where it stands, its windows and their tests."""

import functools
import math
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from ..._host import on_device
from ..._random import key_of
from ...clock import COMPILE, OPTIMISE
from ...estimators import AbstractEstimator, name_of
from ...families import AbstractFamily
from ...judging import paired
from ...recorder import Answer, Problem, Recorder
from ...sharding import on_all_devices
from ..choosing import burden, candidates, cheapest, choose
from ..guarded_adam import guarded_adam, usual_square
from ..journal import Decision
from ..optimizer import Optimizer
from ..signal import signal_to_noise
from ..steps import Carry, Job, Keys
from ..windows import Rates, fresh_optimizer, in_form_of, no_sums, run_window

# Seconds that a look at other estimators may take, relative to those of the fit so far.
PROBE_SHARE = 0.1
# A round that gains this many times what is worth going on for is still drifting.
DRIFTING = 2.0
# One for all stages, so that it need not be read.
OPTIMIZER = Optimizer(guarded_adam(0.0), "guarded adam")


class Stage(NamedTuple):
    """Where the steps stand: the job with its estimator, what it changes, and the best answer so far."""

    job: Job
    carry: Carry
    answer: Answer
    step: int
    pace: float = 0.0


class Verdict(NamedTuple):
    """A window's end against the answer before it, at the judge's draws, with standard errors.

    `average`: the window's average minus its last iterate; `gain`: the better of the two, `found`, minus
    the answer before.
    """

    average: float
    average_error: float
    gain: float
    gain_error: float
    found: Answer

    @property
    def finite(self) -> bool:
        """Whether the window led to a finite ELBO."""
        return math.isfinite(self.found.terms.elbo)

    def numbers(self) -> dict[str, float]:
        """What a decision was based on."""
        return {
            "average_gain": self.average,
            "average_error": self.average_error,
            "answer_gain": self.gain,
            "answer_error": self.gain_error,
            "elbo": self.found.terms.elbo,
        }


class Runner(eqx.Module):
    """What all stages of one fit share."""

    problem: Problem
    recorder: Recorder
    fixed: AbstractEstimator | None
    by_clock: bool
    gain: float
    probe_after: float
    fixed_draws: bool = True

    def first(self, q: AbstractFamily) -> AbstractEstimator:
        """The estimator to begin with."""
        return cheapest(q) if self.fixed is None else self.fixed

    def begin(self, answer: Answer, stream: str) -> Stage:
        """A stage that starts at an answer."""
        target, q, recorder = self.problem.target, answer.q, self.recorder
        params, static = eqx.partition(q, eqx.is_inexact_array)
        estimator = self.first(q)
        recorder.estimator = estimator
        keys = Keys(recorder.words(f"{stream} draws"), recorder.words(f"{stream} rows"))
        job = Job(target, static, estimator, OPTIMIZER, self.problem.batch_size, keys)
        carry = Carry(params, fresh_optimizer(params), estimator.init(target, q))
        return Stage(job, on_all_devices(target, carry), answer, answer.step)

    def window(self, at: Stage, length: int, first: float, last: float) -> tuple[Stage, Verdict]:
        """Steps and the test at their end; the stage after them still has its answer from before."""
        recorder, clock = self.recorder, self.recorder.clock
        with clock.phase(OPTIMISE):
            began, dtype = clock.spent(OPTIMISE), at.carry.optimizer.rate.dtype
            rates = Rates(on_device(first, dtype), on_device(last, dtype))
            step = at.step + length
            span = on_device(at.step, np.int32), on_device(step, np.int32)
            after = average = at.carry
            sums = no_sums(at.carry.params)
            for job, begin, end in self.problem.pieces(at.job, at.step, step):
                piece = on_device(begin, np.int32), on_device(end, np.int32)
                after, sums, average = run_window(job, after, sums, piece, span, rates)
            mid, end = (
                Answer(q, step, recorder.terms(q), after.estimator)
                for q in (eqx.combine(average, at.job.static), at.job.family(after))
            )
            pace = (clock.spent(OPTIMISE) - began) / length
        recorder.progress.signal = functools.partial(
            signal_to_noise, at.carry.optimizer, after.optimizer
        )
        found = mid if paired(mid.terms, end.terms)[0] >= 0 else end
        averaged, gained = paired(mid.terms, end.terms), paired(found.terms, at.answer.terms)
        return at._replace(carry=after, step=step, pace=pace), Verdict(*averaged, *gained, found)

    def kept(self, at: Stage) -> tuple[Any, ...]:
        """What a checkpoint keeps of a stage; the job is the same but for its estimator."""
        return (at.job.estimator, *at[1:])

    def back(self, at: Stage, kept: tuple[Any, ...]) -> Stage:
        """The stage that was kept."""
        return Stage(eqx.tree_at(lambda j: j.estimator, at.job, kept[0]), *kept[1:])

    def at(self, stage: Stage, answer: Answer) -> Stage:
        """The stage with its parameters at an answer."""
        params = eqx.filter(answer.q, eqx.is_inexact_array)
        return stage._replace(carry=stage.carry._replace(params=params))

    def affordable(self, at: Stage, length: int, most: int) -> int:
        """As many steps as the limits leave, at most `length`."""
        length = max(1, min(length, most - at.step))
        if at.pace <= 0 or not math.isfinite(self.recorder.left()):
            return length
        return max(1, min(length, int(self.recorder.left() / at.pace)))

    def note(self, kind: str, step: int, estimator: AbstractEstimator, rate: float, **more: Any) -> None:
        """Write a decision into the journal."""
        self.recorder.decisions.append(Decision(step, kind, name_of(estimator), rate, more))

    def switch_estimator(self, at: Stage, rate: float) -> tuple[Stage, float]:
        """The stage with a better estimator, if one clearly pays, and how much dearer its step is."""
        with self.recorder.clock.phase(OPTIMISE):
            found = choose(
                self.problem.target,
                at.answer.q,
                at.job.estimator,
                in_form_of(at.carry.params, usual_square(at.carry.optimizer)),
                self.problem.batch_size,
                by_clock=self.by_clock,
                key=key_of(self.recorder.words("choose")),
            )
        if found.estimator is None:
            return at, 1.0
        self.note("choose", at.step, found.estimator, rate, ratio=found.ratio, cost=found.cost)
        self.recorder.estimator = found.estimator
        job = eqx.tree_at(lambda j: j.estimator, at.job, found.estimator)
        state = on_all_devices(job.target, found.estimator.init(job.target, at.answer.q))
        return at._replace(job=job, carry=at.carry._replace(estimator=state)), found.cost

    def probe_due(self, at: Stage, gained: float) -> bool:
        """Whether to look for another estimator: in a long fit, once noise is what is left.

        As long as rounds gain much, dearer steps would slow the fit down. A look with all that it
        compiles must be a small part of the fit: of its seconds, or of its steps if not by the clock.
        """
        if self.fixed is not None or gained > DRIFTING * self.gain:
            return False
        if not self.by_clock:
            return burden(at.answer.q, at.job.estimator) < PROBE_SHARE * at.step
        spent = self.recorder.clock.spent(OPTIMISE)
        if spent < self.probe_after:
            return False
        # A candidate compiles as long as the programs so far did on average, more or less.
        clock = self.recorder.clock
        compiling = len(candidates(at.answer.q)) * clock.spent(COMPILE) / max(1, clock.programs)
        return at.pace * burden(at.answer.q, at.job.estimator) + compiling < PROBE_SHARE * spent
