"""A start that the user gave, in an automatic fit: it is evaluated first, and the fit goes on from it.

Where nothing is to be gained there, it is the answer. Else Newton steps lead on from it where they suit.
If these end close to the posterior no other start is tried. If not, the usual starts compete with it,
from its own mean and scales.
"""

from ...judging import paired
from ...points import Points
from ...recorder import Answer
from ..newton import Curved, newton
from .anneal import END
from .curvature import worth_newton
from .stage import Runner, Stage


def from_given(run: Runner, points: Points, given: Answer) -> Curved | None:
    """Newton steps from the start, where they are worth it."""
    if not worth_newton(run, points, given.q):
        return None
    return run.recorder.stage("given", lambda: _from_given(run, points, given))


def _from_given(run: Runner, points: Points, given: Answer) -> Curved:
    recorder = run.recorder
    start = Curved(given.q, given.terms, recorder.steps)
    found = newton(points, start, recorder, recorder.rng("newton from the start"))
    numbers = {"elbo": given.terms.elbo, "later": found.terms.elbo}
    run.note("given", found.steps, run.first(found.q), float("nan"), **numbers)
    return found


def better(a: Curved | None, b: Curved | None) -> Curved | None:
    """The better of two places that Newton steps led to, after the steps of both."""
    if a is None or b is None:
        return a or b
    winner = b if paired(b.terms, a.terms)[0] > 0 else a
    return winner._replace(steps=max(a.steps, b.steps))


def near_optimum(run: Runner, at: Stage, rate: float, length: int) -> tuple[Stage, bool]:
    """One annealed round from the start, and whether it gained so little that annealing will do.

    For families that Newton steps do not know. Bold steps would only lead away from an optimum.
    """
    mark = run.recorder.mark("given")
    if mark.kept is not None:
        stage, near = mark.kept
        return run.back(at, stage), near
    run.recorder.progress.stage = "annealing"
    after, verdict = run.window(at, length, rate, END * rate)
    near = verdict.finite and verdict.gain + verdict.gain_error < run.gain
    gained = verdict.finite and verdict.gain > 0
    answer = verdict.found if gained else at.answer
    at = run.begin(answer, "explore")._replace(step=after.step, pace=after.pace)
    run.note("near" if near else "far", at.step, at.job.estimator, rate, **verdict.numbers())
    run.recorder.tell(answer.q, at.step, answer.terms, state=answer.estimator_state)
    mark.keep((run.kept(at), near))
    return at, near
