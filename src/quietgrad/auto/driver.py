"""auto from start to end: the way to the neighbourhood of the answer, and a finish that decays.

The way is a climb at fixed draws (L-BFGS; on some of the rows for minibatch fits) in the mean-field
family, whose solution low-rank, full-rank and flow families take as their start; Gaussians with
correlations go on by Newton steps. A family that cannot hold it, or a fit without the climb, goes the
way by bold Adam steps. Every stage ends by a paired test on fresh draws, and every decision is recorded.
"""

import dataclasses
import math

import jax.random as jr
from jaxtyping import Array, Key

from ..estimators import AbstractEstimator, resolve
from ..families import AbstractFamily, MeanField, can_embed, embed
from ..loop import Monitor
from ..metrics import elbo_with_error
from ..results import FitResult, History
from ..saa.climb import SaaSettings, climb
from ..saa.newton import MOST_ITERATIONS, newton, suits
from ..samplers import Antithetic
from ..targets import Target
from .finish import finish
from .journal import Decision
from .run import Run
from .settings import AutoSettings
from .way import go

# One number of draws: what fixed draws cannot see is left to the finish.
CLIMB = SaaSettings(most_draws=32, gain=0.5)
# Minibatch fits climb on this many rows.
CLIMB_ROWS = 256
# Nats that a round must gain in the mean-field family when its solution is only a start.
COARSE = 5.0


def fit_auto(
    target: Target,
    q: AbstractFamily,
    *,
    estimator: AbstractEstimator | str = "auto",
    batch_size: int | None = None,
    monitor: Monitor | None = None,
    replay: tuple[Decision, ...] = (),
    settings: AutoSettings = AutoSettings(),
    key: Key[Array, ""],
) -> FitResult:
    """Fit without tuning.

    Any `estimator` but "auto" is kept throughout, and only step size, start and end are chosen.
    `monitor` is that of `quietgrad.fit`. `replay` repeats the choices of a recorded run exactly.
    """
    fixed = None if estimator == "auto" else resolve(estimator)
    if batch_size is not None:
        batch_size = target.check_batch_size(batch_size)
    run = Run(target, settings, batch_size, fixed, monitor, replay, History(), [], [])
    run.first(q).init(target, q)
    key_start, key_way, key_embed, key_run, key_end = jr.split(key, 5)
    q, step, arrived = _start(run, q, key_start, key_way, key_embed)
    at = run.place(q, step, key=key_run)
    rates, pace = _rates(run, q), 0.0
    if not arrived:
        at, rate, pace = go(run, at, run.settings.way_rate(q))
        rates = rate, rate
    length = max(settings.finish_steps, (at.step - step) // 2)
    at, status = finish(run, at, rates, length, settings.gain, pace)
    q = at.q
    value, error = elbo_with_error(target, q, key=key_end)
    return FitResult(
        q=q,
        elbo=float(value),
        elbo_error=float(error),
        status=status,
        steps=at.step,
        history=run.history.arrays(),
        compile_seconds=sum(run.compiling),
        target=target,
        estimator=at.job.estimator,
        estimator_state=at.carry.estimator,
        decisions=tuple(run.decisions),
    )


def _start(
    run: Run,
    q: AbstractFamily,
    key_start: Key[Array, ""],
    key_way: Key[Array, ""],
    key_embed: Key[Array, ""],
) -> tuple[AbstractFamily, int, bool]:
    """Where the family's own stage starts, after how many steps, and whether that is near the answer."""
    simple = q if isinstance(q, MeanField) else MeanField.init(q.dim, key=key_start, base=q.base)
    if not can_embed(q) or not (run.settings.climb or simple is not q):
        return q, 0, False
    if run.settings.climb:
        solution, step = _climb(run, simple, key_way)
    else:
        at, *_ = go(run, run.place(simple, 0, key=key_way), run.settings.rate)
        solution, step = at.q, at.step
    if simple is q:
        return solution, step, True
    if run.batch_size is not None:
        # Some rows led here; on with all of them while steps are cheap.
        at = run.place(solution, step, key=key_way)
        at, _ = finish(run, at, _rates(run, solution), run.settings.finish_steps, COARSE)
        solution, step = at.q, at.step
    assert isinstance(solution, MeanField)
    start = embed(solution, q, key=key_embed)
    assert start is not None
    numbers = {"elbo": run.history["elbo"][-1], "family": type(q).__name__}
    run.note("embed", step, run.first(start), _rates(run, start)[0], numbers)
    if run.settings.climb and run.batch_size is None and suits(run.target, start):
        start, step = _newton(run, start, step, jr.fold_in(key_embed, 1))
    return start, step, True


def _rates(run: Run, q: AbstractFamily) -> tuple[float, float]:
    near = any(decision.kind == "newton" for decision in run.decisions)
    return run.settings.finish_rates(q, near=near)


def _climb(run: Run, q: MeanField, key: Key[Array, ""]) -> tuple[AbstractFamily, int]:
    too_wide = CLIMB.sampler.refuses(CLIMB.draws, q.base, q.base_dim)
    settings = CLIMB if too_wide is None else dataclasses.replace(CLIMB, sampler=Antithetic())
    target = run.target
    if run.batch_size is not None:
        rows = min(target.rows, max(CLIMB_ROWS, run.batch_size))
        target = target.batch(jr.permutation(jr.fold_in(key, 1), target.rows)[:rows])
    climbed = climb(target, q, settings, run.monitor, run.history, key=key)
    run.compiling.append(climbed.compile_seconds)
    numbers = {"elbo": run.history["elbo"][-1], "iterations": climbed.steps}
    run.note("climb", climbed.steps, run.first(q), _rates(run, q)[0], numbers)
    return climbed.q, climbed.steps


def _newton(run: Run, q: AbstractFamily, step: int, key: Key[Array, ""]) -> tuple[AbstractFamily, int]:
    """Newton steps within the limits; in a replay, as many as were taken."""
    taken = [d.numbers["iterations"] for d in run.replay if d.kind == "newton"]
    most = taken[0] if taken else min(MOST_ITERATIONS, max(1, run.settings.steps - step))
    seconds = math.inf
    if run.settings.seconds is not None and not taken:
        seconds = run.settings.seconds - run.seconds
    found = newton(
        run.target,
        q,
        run.monitor,
        run.history,
        first=step,
        most_iterations=most,
        seconds=seconds,
        key=key,
    )
    run.compiling.append(found.compile_seconds)
    numbers = {"elbo": run.history["elbo"][-1], "iterations": found.steps}
    step += found.steps
    run.note("newton", step, run.first(q), _rates(run, q)[0], numbers)
    return found.q, step
