"""The ladder of families above mean-field: what to try next when a richer family might pay.

A full-rank Gaussian where Newton steps can solve for it, then a flow in its coordinates. In dimensions
that are too high for either, or with minibatches, a Gaussian with a few factors. Each rung contains the
one below, whose answer is its start and its floor.
"""

from collections.abc import Callable

import equinox as eqx

from ..._random import key_of
from ...families import AbstractFamily, FullRank, LowRank, WhitenedRealNVP
from ...judging import paired
from ...points import Points
from ...recorder import Answer
from ..method import Ending, Problem, Recorder
from ..newton import MOST_DIM, suits
from .stage import Runner

# Flows beyond this dimension take long to learn anything.
FLOW_DIM = 200
# A family whose estimated distance from the posterior is below this share of the gain is not left. The
# estimate is low for a q that is too narrow, hence the small share.
CLOSE = 0.1


def ladder(problem: Problem, points: Points, recorder: Recorder) -> list[AbstractFamily]:
    """Members of the families above mean-field, the simplest first."""
    dim, kinds = problem.q.dim, []
    if problem.batch_size is None and dim <= MOST_DIM:
        full = _member(FullRank, dim, recorder)
        if suits(points, full):
            kinds = [WhitenedRealNVP] if 1 < dim <= FLOW_DIM else []
            return [full, *(_member(kind, dim, recorder) for kind in kinds)]
    return [_member(LowRank, dim, recorder)] if dim > 1 else []


def up(
    run: Runner,
    answer: Answer,
    rungs: list[AbstractFamily],
    within: Callable[[Answer, AbstractFamily], Ending],
) -> Ending | None:
    """Richer families, each from the answer before, as long as they gain; None to stay.

    `within` fits a family from the answer of a simpler one; what it found is the recorder's best.
    """
    ending, recorder = None, run.recorder
    for q in rungs:
        name, gap = type(answer.q).__name__, answer.terms.gap
        if gap < CLOSE * run.gain:
            numbers = {"family": name, "gap": gap}
            run.note("enough", answer.step, run.first(answer.q), float("nan"), **numbers)
            break
        reached = within(answer, q)
        found = recorder.best
        gained, error = paired(found.terms, answer.terms)
        pays = gained > 2 * error and type(found.q) is type(q)
        numbers = {"family": name, "richer": type(q).__name__, "gained": gained, "error": error}
        kind = "up" if pays else "not up"
        run.note(kind, recorder.steps, run.first(found.q), float("nan"), **numbers)
        if pays:
            answer, ending = found._replace(step=recorder.steps), reached
        else:
            answer = recorder.choose(answer._replace(step=recorder.steps))
    return ending


def _member(kind: type[AbstractFamily], dim: int, recorder: Recorder) -> AbstractFamily:
    return eqx.filter_jit(kind.init)(dim, key=key_of(recorder.words(kind.__name__)))
