"""The ladder of families: from the simplest answer up, as far as something is wrong that can be mended.

The first answer is that of a rung that needs none below, or else the mean-field solution. Its own
diagnosis then says whether anything richer is needed. If the answer would be trusted, it is returned,
and nothing is compiled for the sake of a better one. Otherwise every rung (`rungs/`) that can mend what
is wrong is tried, the cheapest first; what clearly gains becomes the present answer, and is asked in
turn.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ..evaluation.elbo_terms import Difference, ElboEvaluator, paired_difference
from ..families import AbstractFamily, FitsQuadratic, MeanField
from ..session import Candidate
from ..session.clock import EVALUATE
from .method import UNSETTLED, Ending
from .rungs import AbstractRung, Evidence

if TYPE_CHECKING:
    from .auto import Fit


def rungs_of(fit: "Fit") -> list[AbstractRung]:
    """The rungs that can be tried on a problem, the cheapest first."""
    return [rung for rung in fit.auto.rungs if rung.refuses(fit) is None]


def up(fit: "Fit", rungs: list[AbstractRung]) -> Ending:
    """The first answer that would be trusted, or else the best of all that could mend it."""
    session = fit.session
    answer, ending, untried = _begin(fit, rungs)
    number, evidence = 0, None
    while untried:
        if evidence is None:
            evidence, number = _evidence(fit, answer, number), number + 1
        if evidence is None:
            break
        fit.evidence, trusted = evidence, evidence.trusted
        dear = evidence.correctable or evidence.gap < fit.auto.compile_for * fit.gain
        wanted = [r for r in untried if (r.improves(evidence) if trusted else r.mends(evidence))]
        needed = {id(r) for r in wanted if not trusted and r.needed(fit, evidence)}
        able = [r for r in wanted if id(r) in needed or not (r.compiles and (trusted or dear))]
        able.sort(key=lambda r: id(r) not in needed)
        # A rung may have become too dear in the meantime.
        rung = next((r for r in able if r.refuses(fit) is None and r.out_of_time(fit) is None), None)
        if rung is None:
            break
        if rung.compiles and ending is UNSETTLED:
            # Steps that would gain something cost less than any program: a rung begins at their end.
            ending, answer, evidence = fit.finish(answer, near=True), session.best, None
            continue
        untried = [other for other in untried if other is not rung]
        reached, found, pays = _try(fit, rung, answer)
        if pays:
            answer, ending, evidence = found, reached, None
        else:
            answer = session.choose(answer._replace(step=session.steps))
    if ending is None:
        return fit.within(fit.problem.q, answer)
    # Steps that a better start would have made needless.
    return fit.finish(answer, near=True) if ending is UNSETTLED else ending


def _begin(fit: "Fit", rungs: list[AbstractRung]) -> tuple[Candidate, Ending | None, list[AbstractRung]]:
    """The first answer, its ending if it is settled, and the rungs that are left."""
    for rung in rungs:
        ending = rung.begin(fit)
        if ending is not None:
            answer = _simpler(fit, fit.session.best)
            return answer, ending, [other for other in rungs if other is not rung]
    return fit.mean_field()[0], None, rungs


def _simpler(fit: "Fit", answer: Candidate) -> Candidate:
    """The mean-field member for the same quadratic, if it is as good as the posterior itself."""
    q, session = answer.q, fit.session
    if not isinstance(q, FitsQuadratic) or isinstance(q, MeanField):
        return answer
    with session.clock.phase(EVALUATE):
        own = MeanField.of(np.asarray(q.mean(), float), np.zeros(q.dim), q)
        precision = np.diag(np.diagonal(np.linalg.inv(q.host_covariance())))
        found = session.candidate(own.for_quadratic(np.asarray(q.mean(), float), precision), answer.step)
    lost = paired_difference(answer.terms, found.terms)
    if lost.clearly_above() or found.terms.gap > fit.auto.close * fit.gain:
        return answer
    session.record(found)
    session.note("simpler", family=type(q).__name__, simpler="MeanField", lost=lost.nats)
    return session.choose(found)


def _evidence(fit: "Fit", answer: Candidate, number: int) -> Evidence | None:
    """What is wrong with the answer, if it is not trusted; None if it is the posterior itself."""
    session, name = fit.session, type(answer.q).__name__
    session.check()
    with session.clock.phase(EVALUATE):
        target = None if fit.problem.batch_size is not None else fit.problem.target
        rng = session.rng("evidence", number)
        auto = fit.auto
        seconds = max(auto.judged_within, session.clock.total) if auto.by_clock else math.inf
        evidence = Evidence.of(target, answer, rng, auto.draws, auto.judged_by, seconds)
    # A Gaussian at one of several modes is close to the density around it.
    if evidence.gap < fit.auto.close * fit.gain and not evidence.modes:
        session.note("enough", family=name, gap=evidence.gap)
        return None
    if evidence.trusted:
        session.note("trusted", family=name, gap=evidence.gap, why=evidence.reasons[0])
    elif evidence.verdict is not None:
        verdict, why = str(evidence.verdict), evidence.reasons[0]
        session.note("evidence", family=name, verdict=verdict, gap=evidence.gap, why=why)
    return evidence


def _sharper(fit: "Fit", found: AbstractFamily, answer: AbstractFamily) -> Difference:
    """The gain at draws of its own, more of them: where the answer is far from the posterior, so that a
    richer family has much to gain, the evaluator's draws say least."""
    session, target = fit.session, fit.problem.target
    if fit.problem.batch_size is not None:
        return paired_difference(session.terms(found), session.terms(answer))
    with session.clock.phase(EVALUATE):
        judge = ElboEvaluator(target, pairs=fit.auto.draws, seed=session.seed("ladder"))
        return paired_difference(judge.terms(found), judge.terms(answer))


def _try(fit: "Fit", rung: AbstractRung, answer: Candidate) -> tuple[Ending | None, Candidate, bool]:
    """How a rung ended, the best so far, and whether that is clearly better than the answer below."""
    session = fit.session
    reached = rung.solve(fit, answer)
    found = session.best
    gained = paired_difference(found.terms, answer.terms)
    if gained.nats > 0 and not gained.clearly_above():
        gained = _sharper(fit, found.q, answer.q)
    pays = reached is not None and gained.clearly_above()
    richer = type(found.q).__name__ if pays else rung.title
    numbers: dict[str, Any] = {"gained": gained.nats, "error": gained.error}
    session.note("up" if pays else "not up", family=type(answer.q).__name__, richer=richer, **numbers)
    return reached, found._replace(step=session.steps), pays
