"""The way: Adam at a constant, bold rate in growing windows, until noise dominates or nothing is gained.

At a window's end the test compares the window's average, its last iterate and the previous answer on the
same fresh draws. If the average beats the last iterate, noise dominates and the way is at its end. If
the window lost against the previous answer, go back and halve the rate. Some of the time is kept for the
finish.
"""

from .optimizer import guarded_adam
from .run import Place, Run
from .windows import Verdict


def go(run: Run, at: Place, rate: float) -> tuple[Place, float, float]:
    """Windows from a start until the finish is worth it; the rate to finish with, and the seconds that
    a step takes."""
    settings, begun, pace = run.settings, at.step, 0.0
    floor = settings.window if run.batch_size is None else settings.batch_window
    while True:
        length = max(floor, int(settings.growth * (at.step - begun)))
        length = run.affordable(at.step, length, pace)
        after, average, verdict, spent = run.window(at, length, rate, rate)
        step, estimator, pace = at.step + length, at.job.estimator, spent / length
        kind = _verdict(run, verdict)
        if kind == "reset":
            rate = rate / 4
            fresh = guarded_adam(settings.rate).init(at.answer)
            carry = at.carry._replace(params=at.answer, optimizer=fresh)
            at = at._replace(carry=carry, step=step)
        elif kind == "roll back":
            rate = rate / 2
            at = at._replace(carry=after._replace(params=at.answer), step=step)
        else:
            best = average if verdict.average >= 0 else after.params
            end = average if kind == "noise" else after.params
            at = Place(at.job, after._replace(params=end), best, step)
        run.note(kind, step, estimator, rate, numbers(verdict))
        run.record(at, spent, verdict)
        if kind in ("noise", "level") or run.late(step):
            return at, rate, pace


def _verdict(run: Run, verdict: Verdict) -> str:
    gain = run.settings.gain
    if not verdict.finite:
        return "reset"
    if verdict.answer < -2 * verdict.answer_error:
        return "roll back"
    if verdict.average > max(gain, 2 * verdict.average_error) and verdict.answer < verdict.average / 2:
        return "noise"
    return "level" if verdict.answer + verdict.answer_error < gain else "go on"


def numbers(verdict: Verdict) -> dict[str, float]:
    """What a decision was based on."""
    return {
        "average_gain": verdict.average,
        "average_error": verdict.average_error,
        "answer_gain": verdict.answer,
        "answer_error": verdict.answer_error,
        "elbo": verdict.elbo,
    }
