"""The finish: rounds of steps whose rate decays to nothing, each twice as long as the one before.

A round ends quietly, so its last iterate is as good as its rate and length allow. The test on fresh
draws decides: too little gained ends the fit; a loss is taken back and the rate halved. Where longer
strides may pay, a gain doubles the rate.
"""

import math

from ..results import Status
from .run import Place, Run
from .way import numbers

# The rate a round ends with, relative to its first.
END = 0.01
# A short round that gains nothing proves little.
LEAST_ROUNDS = 2


def finish(
    run: Run, at: Place, rates: tuple[float, float], length: int, gain: float, pace: float = 0.0
) -> tuple[Place, Status]:
    """Rounds until one gains less than `gain` nats (two at least, but for a start), or a limit.

    `rates` are the first one and the most that successful rounds may raise it to.
    """
    settings, (rate, most) = run.settings, rates
    probed, gained, rounds = False, math.inf, 0
    while True:
        if not probed and run.probe_due(at, pace, gained):
            at, dearer = run.quieter(at, rate)
            # As much time for a round as before: dearer steps are fewer.
            probed, length = True, max(settings.finish_steps, int(length / dearer))
            pace = pace * dearer
        length = run.affordable(at.step, length, pace)
        after, average, verdict, spent = run.window(at, length, rate, END * rate)
        step, pace = at.step + length, spent / length
        if not verdict.finite or verdict.answer < -2 * verdict.answer_error:
            kind, rate = "take back", rate / 2
            most = rate
            at = at._replace(carry=at.carry._replace(params=at.answer), step=step)
        else:
            end_point = average if verdict.average > 0 else after.params
            best = end_point if verdict.answer > 0 else at.answer
            gained = verdict.answer + verdict.answer_error
            rounds += 1
            least, end = (LEAST_ROUNDS, "stop") if gain <= settings.gain else (1, "near enough")
            kind = end if gained < gain and rounds >= least else "round"
            at = Place(at.job, after._replace(params=best), best, step)
            length, rate = 2 * length, min(2 * rate, most)
        run.note(kind, step, at.job.estimator, rate, numbers(verdict))
        run.record(at, spent, verdict)
        if kind in ("stop", "near enough"):
            return at, Status.CONVERGED
        if run.over(step):
            return at, Status.BUDGET
