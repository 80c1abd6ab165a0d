"""The ladder of families above mean-field: richer ones are tried in turn as long as they gain.

Each rung (`rungs/`) starts from the answer that stands, which is its floor.
"""

from typing import TYPE_CHECKING, Any

from ..evaluation.judging import paired_difference
from .method import Ending
from .rungs import AbstractRung, Evidence

if TYPE_CHECKING:
    from .auto import Fit


def rungs_of(fit: "Fit") -> list[AbstractRung]:
    """The rungs that can be tried on a problem, the cheapest first."""
    return [rung for rung in fit.auto.rungs if rung.refuses(fit) is None]


def up(fit: "Fit", rungs: list[AbstractRung]) -> Ending:
    """Richer families, each from the answer before, as long as they gain."""
    ending, session = None, fit.session
    answer, _ = fit.mean_field()
    for rung in rungs:
        evidence, name = Evidence.of(answer), type(answer.q).__name__
        if evidence.gap < fit.auto.close * fit.gain:
            session.note("enough", family=name, gap=evidence.gap)
            break
        if not rung.mends(evidence):
            continue
        reached = rung.solve(fit, answer)
        found = session.best
        gained = paired_difference(found.terms, answer.terms)
        pays = reached is not None and gained.clearly_above()
        richer = type(found.q).__name__ if pays else rung.title
        numbers: dict[str, Any] = {"gained": gained.nats, "error": gained.error}
        session.note("up" if pays else "not up", family=name, richer=richer, **numbers)
        if pays:
            answer, ending = found._replace(step=session.steps), reached
        else:
            answer = session.choose(answer._replace(step=session.steps))
    return fit.within(fit.problem.q, answer) if ending is None else ending
