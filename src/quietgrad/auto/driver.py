"""The rule behind auto: Adam from a bold rate, growing windows, and one paired test at each one's end.

The test compares the window's average, its last iterate and the previous answer on the same fresh
draws. If the average beats the last iterate, noise dominates: restart from the average and halve the
rate; and then it pays to look for a quieter estimator. If the window lost against the previous answer,
go back. If nothing gains half a nat, stop. The answer is the better of average and iterate.
"""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key, PyTree

from .._same import Recipe
from ..estimators import Pathwise
from ..families import AbstractFamily, AbstractFlow, FullRank, LowRank, MeanField, embed
from ..loop import Carry, Job, Keys, strong
from ..metrics import elbo_with_error
from ..results import FitResult, History, Status
from ..samplers import Antithetic
from ..targets import Target
from .choose import candidates, cheapest, measure, name_of
from .journal import Decision
from .optimizer import GuardedState, guarded_adam, usual_square
from .windows import Verdict, compare, run_window


class AutoSettings(eqx.Module):
    """Rates, windows and limits; the defaults need no tuning by the user."""

    rate: float = 0.1
    family_rate: float = 0.02
    window: int = 200
    batch_window: int = 500
    growth: float = 0.2
    gain: float = 0.5
    least_checks: int = 6
    check_draws: int = 64
    steps: int = 100_000
    seconds: float | None = None
    by_clock: bool = True
    choose: bool = True


class _Run(eqx.Module):
    """What the two stages of a fit share."""

    target: Target
    settings: AutoSettings
    batch_size: int | None
    history: History
    decisions: list[Decision]
    replay: tuple[Decision, ...]
    spent: list[float]
    compiling: list[float]

    def warm_up(self, job: Job, carry: Carry, step: int) -> None:
        """Compile the window of a job, apart from the clock."""
        began = time.perf_counter()
        jax.block_until_ready(run_window(job, carry, *_span(step, step)))
        self.compiling.append(time.perf_counter() - began)

    def seconds(self) -> float:
        """Seconds of optimisation so far."""
        return sum(self.spent)


def fit_auto(
    target: Target,
    q: AbstractFamily,
    *,
    batch_size: int | None = None,
    replay: tuple[Decision, ...] = (),
    settings: AutoSettings = AutoSettings(),
    key: Key[Array, ""],
) -> FitResult:
    """Fit without tuning; `replay` repeats the choices of a recorded run exactly."""
    key_start, key_embed, key_run, key_end = jr.split(key, 4)
    cheapest(q).init(target, q)
    if batch_size is not None:
        batch_size = target.check_batch_size(batch_size)
    run = _Run(target, settings, batch_size, History(), [], replay, [], [])
    step = 0
    if isinstance(q, LowRank | FullRank | AbstractFlow):
        mean_field = MeanField.init(q.dim, key=key_start, base=q.base)
        inside = embed(mean_field, q, key=key_embed)
        if inside is not None:
            solution, step, _ = _stage(run, mean_field, 0, settings.rate, key_start)
            assert isinstance(solution, MeanField)
            start = embed(solution, q, key=key_embed)
            assert start is not None
            q = start
            numbers = {"elbo": run.history["elbo"][-1], "family": type(q).__name__}
            run.decisions.append(
                Decision(step, "embed", name_of(cheapest(q)), settings.family_rate, numbers)
            )
    rate = settings.rate if isinstance(q, MeanField) else settings.family_rate
    q, step, status = _stage(run, q, step, rate, key_run)
    value, error = elbo_with_error(target, q, key=key_end)
    return FitResult(
        q=q,
        elbo=float(value),
        elbo_error=float(error),
        status=status,
        steps=step,
        history=run.history.arrays(),
        compile_seconds=sum(run.compiling),
        target=target,
        estimator=cheapest(q),
        estimator_state=None,
        decisions=tuple(run.decisions),
    )


def _stage(
    run: _Run, q: AbstractFamily, step: int, rate: float, key: Key[Array, ""]
) -> tuple[AbstractFamily, int, Status]:
    """One family from a start to its plateau."""
    settings, target = run.settings, run.target
    params, static = eqx.partition(q, eqx.is_inexact_array)
    keys = Keys(*jr.split(key, 3))
    optimizer = guarded_adam(rate)

    def job_for(estimator: Pathwise) -> Job:
        return Job(target, static, estimator, Recipe(optimizer), run.batch_size, keys)

    estimator = cheapest(q)
    job = job_for(estimator)
    order = jnp.arange(target.rows)
    carry = strong(Carry(params, optimizer.init(params), estimator.init(target, q), order))
    answer, checks, begun, chosen = params, 0, step, False
    run.warm_up(job, carry, step)
    while True:
        floor = settings.window if run.batch_size is None else settings.batch_window
        length = max(floor, int(settings.growth * (step - begun)))
        e = _check_draws(q, settings.check_draws, jr.fold_in(keys.evaluation, step))
        if checks == 0:
            compare(target, static, params, params, params, e)
        clock = time.perf_counter()
        after, average = run_window(job, carry, *_span(step, step + length))
        verdict = compare(target, static, average, after.params, answer, e)
        run.spent.append(time.perf_counter() - clock)
        step, checks = step + length, checks + 1
        kind, carry, answer = _decide(run, verdict, checks, carry, after, average, answer)
        note = name_of(estimator)
        numbers = _numbers(verdict)
        run.decisions.append(Decision(step, kind, note, float(carry.optimizer.rate), numbers))
        run.history.add(step, run.spent[-1], {"elbo": verdict.elbo, "elbo_error": verdict.error})
        if kind == "stop":
            return eqx.combine(answer, static), step, Status.CONVERGED
        out_of_time = settings.seconds is not None and run.seconds() >= settings.seconds
        if step - begun >= settings.steps or out_of_time:
            return eqx.combine(answer, static), step, Status.BUDGET
        if kind == "halve" and settings.choose and not chosen:
            chosen = True
            picked, ratio = _pick(run, eqx.combine(answer, static), carry, estimator, keys, step)
            if picked is not None:
                estimator, job = picked, job_for(picked)
                carry = carry._replace(estimator=estimator.init(target, q))
                run.decisions.append(
                    Decision(
                        step, "choose", name_of(estimator), float(carry.optimizer.rate), {"ratio": ratio}
                    )
                )
                run.warm_up(job, carry, step)


def _decide(
    run: _Run,
    verdict: Verdict,
    checks: int,
    before: Carry,
    after: Carry,
    average: PyTree,
    answer: PyTree,
) -> tuple[str, Carry, PyTree]:
    """What the test says, the carry to go on with, and the answer so far."""
    gain = run.settings.gain
    if not verdict.finite:
        fresh = guarded_adam(float(before.optimizer.rate) / 4).init(answer)
        return "reset", before._replace(params=answer, optimizer=strong(fresh)), answer
    best = average if verdict.average >= 0 else after.params
    loss = verdict.answer + max(0.0, -verdict.average)
    if loss < -2 * verdict.answer_error:
        return "roll back", _scaled(after._replace(params=answer), 0.5), answer
    if verdict.average > max(gain, 2 * verdict.average_error) and verdict.answer < verdict.average / 2:
        return "halve", _scaled(after._replace(params=average), 0.5), best
    settled = (
        verdict.answer + verdict.answer_error < gain
        and verdict.average < gain
        and verdict.answer >= -max(gain, 2 * verdict.answer_error)
    )
    if checks >= run.settings.least_checks and settled:
        return "stop", after, best
    return "go on", after, best


def _pick(
    run: _Run, q: AbstractFamily, carry: Carry, current: Pathwise, keys: Keys, step: int
) -> tuple[Pathwise | None, float]:
    """Another estimator if it clearly pays, measured on the spot or taken from a replay."""
    field = candidates(q)
    if run.replay:
        again = [d for d in run.replay if d.kind == "choose" and d.step == step]
        return (field[again[0].estimator], again[0].numbers["ratio"]) if again else (None, 1.0)
    assert isinstance(carry.optimizer, GuardedState)
    scores = measure(
        run.target,
        q,
        field,
        usual_square(carry.optimizer),
        run.batch_size,
        by_clock=run.settings.by_clock,
        key=jr.fold_in(keys.evaluation, 2**31),
    )
    best = min(scores, key=lambda name: scores[name])
    ratio = scores[best] / scores[name_of(current)]
    return (field[best], ratio) if ratio < 0.8 else (None, 1.0)


def _scaled(carry: Carry, factor: float) -> Carry:
    optimizer = carry.optimizer._replace(rate=carry.optimizer.rate * factor)
    return carry._replace(optimizer=optimizer)


def _numbers(verdict: Verdict) -> dict[str, float]:
    return {
        "average_gain": verdict.average,
        "average_error": verdict.average_error,
        "answer_gain": verdict.answer,
        "answer_error": verdict.answer_error,
        "loss": -(verdict.answer + max(0.0, -verdict.average)),
    }


def _check_draws(q: AbstractFamily, draws: int, key: Key[Array, ""]) -> Array:
    sampler = Antithetic()
    return sampler.draw(None, q.base, (draws, q.base_dim), q.dtype, key=key)


def _span(first: int, last: int) -> tuple[Array, Array]:
    return jnp.asarray(first, jnp.int32), jnp.asarray(last, jnp.int32)
