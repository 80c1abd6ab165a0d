"""The ladder of families above mean-field: what to try next when a richer family might pay.

A full-rank Gaussian where Newton steps can solve for it, then a flow in its coordinates. In dimensions
that are too high for either, or with minibatches, a Gaussian with a few factors. Each rung contains the
one below, whose answer is its start and its floor.
"""

from typing import TYPE_CHECKING, Any

import equinox as eqx

from .._util.random import key_of
from ..evaluation.judging import paired_difference
from ..families import AbstractFamily, FullRank, LowRank, WhitenedRealNVP
from ..session import Recorder
from .method import Ending

if TYPE_CHECKING:
    from .auto import Fit

# Flows beyond this dimension take long to learn anything.
FLOW_DIM = 200
# A family whose estimated distance from the posterior is below this share of the gain is not left. The
# estimate is low for a q that is too narrow, hence the small share.
CLOSE = 0.1


def ladder(fit: "Fit") -> list[AbstractFamily]:
    """Members of the families above mean-field, the simplest first."""
    dim, session = fit.problem.q.dim, fit.session
    if dim == 1:
        return []
    if fit.problem.batch_size is None and dim <= fit.auto.curvature.most_dim:
        full = _member(FullRank, dim, session)
        if fit.auto.curvature.suits(session.points, full):
            return [full, _member(WhitenedRealNVP, dim, session)] if dim <= FLOW_DIM else [full]
    return [_member(LowRank, dim, session)]


def up(fit: "Fit", rungs: list[AbstractFamily]) -> Ending:
    """Richer families, each from the answer before, as long as they gain."""
    ending, session = None, fit.session
    answer, _ = fit.mean_field()
    for q in rungs:
        name, gap = type(answer.q).__name__, answer.terms.gap
        if gap < CLOSE * fit.gain:
            session.note("enough", family=name, gap=gap)
            break
        reached = fit.within(q, answer)
        found = session.best
        gained = paired_difference(found.terms, answer.terms)
        pays = gained.clearly_above() and type(found.q) is type(q)
        numbers: dict[str, Any] = {"gained": gained.nats, "error": gained.error}
        session.note("up" if pays else "not up", family=name, richer=type(q).__name__, **numbers)
        if pays:
            answer, ending = found._replace(step=session.steps), reached
        else:
            answer = session.choose(answer._replace(step=session.steps))
    return fit.within(fit.problem.q, answer) if ending is None else ending


def _member(kind: type[AbstractFamily], dim: int, session: Recorder) -> AbstractFamily:
    return eqx.filter_jit(kind.init)(dim, key=key_of(session.words(kind.__name__)))
