"""Stochastic gradient steps with any estimator and any optax optimiser.

Steps run in chunks. A chunk is a compiled loop whose first and last step are run-time numbers, so a
shorter chunk does not compile again. Step t uses keys folded with t: results do not depend on how steps
are cut into chunks, and a chunk can be replayed.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Int, PyTree

from .._checks import described, whole
from .._host import on_device
from ..clock import EVALUATE, OPTIMISE
from ..estimators import AbstractEstimator, resolve
from ..families import AbstractFamily
from ..history import Plateau, Reached
from ..propriety import nowhere_finite
from ..sharding import on_all_devices
from ..status import Status
from ..targets import Target
from .choosing import cheapest
from .late_mean import Late, held_by_noise
from .method import AbstractMethod, Ending, Problem, Recorder
from .optimizer import read_optimizer
from .signal import signal_to_noise
from .steps import Carry, Job, Keys, strong
from .switching import Switching

# Seconds that a chunk may take: Ctrl-C and limits are looked at in between.
CHUNK_SECONDS = 1.0
# Steps of the first chunk, which tells how long one takes.
FIRST_STEPS = 20
STILL_RISING = "the ELBO was still rising, or too noisy to tell; give more steps"
BLOWN_UP = (
    "the parameters turned NaN or infinite after this step, and q is the best answer before it; try a "
    "smaller learning rate, optax.clip_by_global_norm, more draws, or check the log density for log(0), "
    "sqrt(0) or overflow far from the mode"
)


def _optimizer(given: Any) -> optax.GradientTransformation | None:
    if given is not None and not isinstance(given, optax.GradientTransformation):
        made = described(given)
        raise TypeError(f"optimizer must be made by optax, e.g. optax.adam(1e-2); got {made}")
    return given


class Sgd(AbstractMethod):
    """`steps` steps of an optax `optimizer` (Adam at 0.01 by default) with an `estimator`.

    `estimator` is an instance or a registered name; "auto" begins with the cheapest quiet one and
    changes it when noise dominates and another has less variance x cost. The ELBO is evaluated every
    `evaluate_every` steps (a hundredth of the run by default), less often where that would take more
    than its share of the time. `stop=Plateau()` ends the run once the ELBO has stopped rising, and
    `stop=Reached(value)` once it is there. The answer is the last q, or an earlier one that is clearly
    better. With `by_clock` off nothing depends on seconds, and a run can be repeated exactly: no
    evaluation is left out, and "auto" compares estimators by gradient evaluations.
    """

    estimator: AbstractEstimator | str = eqx.field(
        converter=lambda given: given if given == "auto" else resolve(given), default="quiet"
    )
    optimizer: optax.GradientTransformation | None = eqx.field(converter=_optimizer, default=None)
    steps: int = eqx.field(converter=lambda n: whole(n, "steps", least=1), default=10_000)
    evaluate_every: int | None = None
    stop: Plateau | Reached | None = None
    by_clock: bool = True

    def __check_init__(self):
        """Evaluations come after whole steps."""
        if self.evaluate_every is not None:
            whole(self.evaluate_every, "evaluate_every", least=1)

    def refuses(self, target: Target, q: AbstractFamily, batch_size: int | None) -> str | None:
        """What the estimator objects to."""
        del batch_size
        return None if isinstance(self.estimator, str) else self.estimator.refuses(target, q)

    def run(self, problem: Problem, recorder: Recorder) -> Ending:
        """Look at the start, then take the steps."""
        recorder.prefer_last()
        first = recorder.look(problem.q, 0)
        if first.terms.bad == 2 * first.terms.values.size:
            return nowhere_finite(problem.target, recorder.points(problem.q)).ending
        return self.steps_from(problem, recorder)

    def steps_from(self, problem: Problem, recorder: Recorder, *, first: int = 0) -> Ending:
        """Chunks of steps, with an evaluation after each as far as there is time for it.

        `first` is the number of steps that other stages of the fit took before.
        """
        job, carry = self._begin(problem, recorder)
        switch = self._switch(problem, recorder)
        every = self.evaluate_every or -(-self.steps // 100)
        mark, step, pace, stopped, late = recorder.mark("steps"), 0, 0.0, False, Late()
        if mark.kept is not None:
            step, estimator, carry, stopped, looks, late = mark.kept
            job = eqx.tree_at(lambda j: j.estimator, job, estimator)
            if switch is not None:
                switch.looks = looks
        seen = carry.optimizer
        recorder.progress.stage = "stochastic steps"
        recorder.progress.plan(first, first + self.steps, recorder.clock)
        while step < self.steps and not stopped:
            last = min(self.steps, (step // every + 1) * every)
            # Several processes must cut their steps at the same places, whatever their clocks say.
            if jax.process_count() == 1:
                most = int(CHUNK_SECONDS / pace) if pace > 0 else FIRST_STEPS
                last = min(last, step + max(1, most))
            carry, step, finite, pace = self._chunk(job, carry, step, last, recorder)
            if not finite:
                recorder.steps = first + step
                return Status.NON_FINITE, BLOWN_UP
            may_look = not self.by_clock or recorder.may_look()
            if step == self.steps or (step % every == 0 and may_look):
                recorder.progress.signal = functools.partial(signal_to_noise, seen, carry.optimizer)
                seen = carry.optimizer
                recorder.look(job.family(carry), first + step, state=carry.estimator)
                late = late.after(carry.params)
                if switch is not None:
                    job, carry = self._changed(switch, job, carry, step, recorder)
                stop = self.stop
                stopped = stop is not None and stop.reached(recorder.history.column(stop.column))
            else:
                recorder.passed(first + step)
            looks = [] if switch is None else switch.looks
            mark.keep((step, job.estimator, carry, stopped, looks, late))
        verdict = Plateau() if self.stop is None else self.stop
        if not verdict.reached(recorder.history.column(verdict.column)):
            return Status.BUDGET, STILL_RISING
        if isinstance(verdict, Reached):
            return Status.CONVERGED, "the value that was asked for is reached"
        with recorder.clock.phase(EVALUATE):
            noisy = held_by_noise(job, carry, late, recorder)
        return noisy or (Status.CONVERGED, "the ELBO has stopped rising")

    def _begin(self, problem: Problem, recorder: Recorder) -> tuple[Job, Carry]:
        target, q = problem.target, problem.q
        estimator = cheapest(q) if isinstance(self.estimator, str) else self.estimator
        recorder.estimator = estimator
        optimizer = optax.adam(1e-2) if self.optimizer is None else self.optimizer
        params, static = eqx.partition(q, eqx.is_inexact_array)
        keys = Keys(recorder.words("draws"), recorder.words("rows"))
        state = optimizer.init(params)
        known = read_optimizer(optimizer, params, state)
        job = Job(target, static, estimator, known, problem.batch_size, keys)
        carry = Carry(params, state, estimator.init(target, q))
        return job, on_all_devices(target, strong(carry))

    def _chunk(
        self, job: Job, carry: Carry, first: int, last: int, recorder: Recorder
    ) -> tuple[Carry, int, bool, float]:
        """The carry after the last finite step, that step, whether it is `last`, and seconds a step."""
        with recorder.clock.phase(OPTIMISE):
            began, pace = recorder.clock.spent(OPTIMISE), 0.0
            for piece, begin, end in recorder.problem.pieces(job, first, last):
                after, finite = jax.block_until_ready(_run(piece, carry, *_span(begin, end)))
                pace = (recorder.clock.spent(OPTIMISE) - began) / max(1, end - first)
                if not finite:
                    carry, reached = _replay(piece, carry, *_span(begin, end))
                    return carry, int(reached), False, pace
                carry = after
            return carry, last, True, pace

    def _switch(self, problem: Problem, recorder: Recorder) -> Switching | None:
        if not isinstance(self.estimator, str):
            return None
        return Switching(
            problem.target,
            steps=self.steps,
            batch_size=problem.batch_size,
            by_clock=self.by_clock,
            words=recorder.words("switch"),
        )

    def _changed(
        self, switch: Switching, job: Job, carry: Carry, step: int, recorder: Recorder
    ) -> tuple[Job, Carry]:
        with recorder.clock.phase(OPTIMISE):
            found = switch(job.family(carry), job.estimator, step, recorder)
        if found is None:
            return job, carry
        recorder.estimator = found
        state = on_all_devices(job.target, strong(found.init(job.target, job.family(carry))))
        return eqx.tree_at(lambda j: j.estimator, job, found), carry._replace(estimator=state)


@eqx.filter_jit
def _run(
    job: Job, carry: Carry, first: Int[Array, ""], last: Int[Array, ""]
) -> tuple[Carry, Bool[Array, ""]]:
    """Steps first, ..., last - 1, and whether the parameters are finite after them."""
    carry = jax.lax.fori_loop(first, last, lambda t, c: job.step(c, t), carry)
    return carry, _finite(carry.params)


@eqx.filter_jit
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
