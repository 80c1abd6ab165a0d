"""Exploring: Adam at a constant, bold rate in growing windows, until noise dominates or gains end.

For families that cannot start from a simpler one's solution. At a window's end the judge compares the
window's average, its last iterate and the answer before. If the average beats the last iterate, noise
dominates and it is time to anneal. A window that lost is taken back at half the rate.
"""

import equinox as eqx

from ..windows import fresh_optimizer
from .stage import Runner, Stage, Verdict

WINDOW, BATCH_WINDOW, GROWTH = 200, 500, 0.2
# The part of the steps that exploring may take, and the resets after which it gives up.
SHARE, MOST_RESETS = 0.6, 6


def explore(run: Runner, at: Stage, rate: float, most_steps: int) -> tuple[Stage, float]:
    """Windows from a start until annealing is worth it, and the rate to anneal from."""
    run.recorder.progress.stage = "exploring"
    mark, begun, resets, done = run.recorder.mark("explore"), at.step, 0, False
    if mark.kept is not None:
        stage, rate, resets, done = mark.kept
        at = run.back(at, stage)
    least = WINDOW if run.problem.batch_size is None else BATCH_WINDOW
    while not done:
        length = run.affordable(at, max(least, int(GROWTH * (at.step - begun))), most_steps)
        after, verdict = run.window(at, length, rate, rate)
        kind = _kind(run, verdict)
        if kind in ("reset", "roll back"):
            resets, rate = resets + 1, rate / (4 if kind == "reset" else 2)
            at = run.at(after, at.answer)
            if kind == "reset":
                fresh = fresh_optimizer(eqx.filter(at.answer.q, eqx.is_inexact_array))
                at = at._replace(carry=at.carry._replace(optimizer=fresh))
        else:
            at = after._replace(answer=verdict.found)
            at = run.at(at, verdict.found) if kind == "noise" else at
        run.note(kind, at.step, at.job.estimator, rate, **verdict.numbers())
        answer = at.answer
        run.recorder.tell(answer.q, at.step, answer.terms, state=answer.estimator_state)
        late = at.step - begun >= SHARE * (most_steps - begun)
        done = kind in ("noise", "level") or late or resets >= MOST_RESETS
        mark.keep((run.kept(at), rate, resets, done))
    return at, rate


def _kind(run: Runner, verdict: Verdict) -> str:
    if not verdict.finite:
        return "reset"
    if verdict.gain < -2 * verdict.gain_error:
        return "roll back"
    if verdict.average > max(run.gain, 2 * verdict.average_error) and verdict.gain < verdict.average / 2:
        return "noise"
    return "level" if verdict.gain + verdict.gain_error < run.gain else "go on"
