"""Annealing: rounds of steps whose rate decays to nothing, each twice as long as the one before.

A round ends quietly, so its last iterate is as good as its rate and length allow. The judge decides:
too little gained ends the fit, and so does a gain so much smaller than those before it that the next
round, which takes as long as all before it, would gain too little; a loss is taken back and the rate
halved. Where longer strides may pay, a gain doubles the rate.
"""

import math

from .stage import Runner, Stage

# The rate a round ends with, relative to its first.
END = 0.01
# A short round that gains nothing proves little.
LEAST_ROUNDS = 2
# Rounds after which their gains foretell the next one's, and what that must be of a gain worth having.
FORETOLD, SHARE = 3, 0.5
# Rounds in a row that were taken back, after which steps of any size lose.
MOST_LOSSES = 8
# How annealing can end: gains became small; so they did, but next to points where the density is not
# finite; steps of every size lost; or the steps were used up.
ENDS = ("rested", "wall", "lost", "out of steps")


def anneal(
    run: Runner,
    at: Stage,
    rates: tuple[float, float],
    length: int,
    most_steps: int,
    *,
    gain: float,
    least_rounds: int = LEAST_ROUNDS,
) -> tuple[Stage, str]:
    """Rounds until one gains less than `gain` nats, or a limit; and how it ended: see `ENDS`.

    `rates` are the first one and the most that successful rounds may raise it to.
    """
    rate, most = rates
    run.recorder.progress.stage = "annealing"
    probed, gained, rounds, losses, least, walls, kind = False, math.inf, 0, 0, length, 0, "round"
    # What the round before gained; unknown after one that was taken back.
    last = math.inf
    mark = run.recorder.mark("anneal")
    if mark.kept is not None:
        stage, rate, most, length, probed, gained, last, rounds, losses, walls, kind = mark.kept
        at = run.back(at, stage)
    while kind != "stop" and at.step < most_steps and losses < MOST_LOSSES:
        if not probed and run.probe_due(at, gained):
            at, dearer = run.switch_estimator(at, rate)
            # As much time for a round as before: dearer steps are fewer.
            probed, length = True, max(least, int(length / dearer))
            at = at._replace(pace=at.pace * dearer)
        length = run.affordable(at, length, most_steps)
        after, verdict = run.window(at, length, rate, END * rate)
        if not verdict.finite or verdict.gain < -2 * verdict.gain_error:
            kind, rate, losses, last = "take back", rate / 2, losses + 1, math.inf
            walls += not verdict.finite
            # The momentum of the lost round goes with it.
            most, at = rate, run.at(at._replace(step=after.step, pace=after.pace), at.answer)
        else:
            # Where the judge cannot tell, the longer round is the better one.
            unclear = verdict.gain_error > gain
            answer = verdict.found if verdict.gain > 0 or unclear else at.answer
            # A loss that may be noise is no sign that nothing is left to gain.
            gained, rounds, losses = max(verdict.gain, 0.0) + verdict.gain_error, rounds + 1, 0
            # The next gain, if it is to this one as this one is to the last.
            foretold = rounds >= FORETOLD and gained < last < math.inf
            little = gained < gain or (foretold and gained**2 / last < SHARE * gain)
            kind, last = "stop" if little and rounds >= least_rounds else "round", gained
            at = run.at(after._replace(answer=answer), answer)
            length, rate = 2 * length, min(2 * rate, most)
        run.note(kind, at.step, at.job.estimator, rate, **verdict.numbers())
        answer = at.answer
        run.recorder.tell(answer.q, at.step, answer.terms, state=answer.estimator_state)
        numbers = length, probed, gained, last, rounds, losses, walls
        mark.keep((run.kept(at), rate, most, *numbers, kind))
    if kind == "stop":
        return at, "wall" if walls else "rested"
    if losses >= MOST_LOSSES:
        return at, "wall" if walls else "lost"
    return at, "out of steps"
