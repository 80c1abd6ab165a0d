"""What to do about a fit that is not right: parametrisation, family, more steps, or NUTS."""

from ..families import AbstractFamily, FitsQuadratic, HasMoments
from ..status import Status
from .diagnosis import Ending, Verdict
from .evidence import Evidence
from .tolerance import off

NAMED = 3
CORRECTED = "result.posterior(key) gives the corrected draws; use these, not result.sample"
LONGER = "give the verdict more time: result.diagnose(seconds=...)"
NUTS = "run NUTS, for which result.for_nuts() gives starting points and an inverse mass matrix"


def advise(
    verdict: Verdict,
    evidence: Evidence,
    ending: Ending,
    q: AbstractFamily,
) -> list[str]:
    """Sentences, the first thing to try first; none for a fit that can be trusted."""
    if verdict is Verdict.TRUST:
        return []
    advice = [CORRECTED] if verdict is Verdict.CORRECTED else []
    if evidence.unseen:
        advice.append(LONGER)
    if any(tail.improper for _, tail in evidence.tails):
        return ["give every coordinate that the data do not determine a proper prior"]
    if evidence.tails:
        return [
            "report quantiles instead of means and sds, from NUTS; or give a prior with lighter tails",
            "a family on a Student-t base, such as FullRank.init(dim, base=StudentT(2.0), key=key), "
            "follows such tails better than a Gaussian",
        ]
    advice += _model(evidence)
    if evidence.elsewhere is not None or (evidence.modes is not None and not evidence.covers):
        advice.append(
            "the posterior has several modes: tell them apart by a prior or an ordering if they are the "
            "same up to labels or signs; otherwise start fits or chains in each of them"
        )
    unfinished = ending.status is not Status.CONVERGED and not ending.status.failed
    if unfinished or evidence.gain.nats - 2 * evidence.gain.error > 1:
        advice.append("give the fit more steps or seconds: fit(target, result.q, ...) goes on from here")
    wrong_scales = bool(off(evidence.best, evidence.settings)[1].any())
    if isinstance(q, HasMoments) and not q.correlated:
        advice.append(
            "try a family that can follow correlations: 'full-rank', or 'low-rank' in high dim"
        )
        if wrong_scales:
            advice.append("result.linear_response() gives better scales for the fit as it is")
    elif isinstance(q, HasMoments):
        richer = "" if isinstance(q, FitsQuadratic) and q.any_covariance else "'full-rank' or "
        advice.append(f"try a richer family: {richer}a flow such as 'real-nvp-affine'")
    if verdict is Verdict.DO_NOT_TRUST:
        advice.append(NUTS)
    return advice


def _model(evidence: Evidence) -> list[str]:
    """Advice on the parametrisation, from the shape of the posterior."""
    advice, shapes, name = [], evidence.shapes, evidence.watched.coordinate
    if shapes.funnel is not None:
        driver, driven = shapes.funnel
        some = ", ".join(name(i) for i in driven[:NAMED])
        more = f" and {len(driven) - NAMED} more" if len(driven) > NAMED else ""
        advice.append(
            f"a funnel: the spread of {some}{more} depends on {name(driver)}; write them non-centred, "
            "as location + scale * raw with raw ~ N(0, 1)"
        )
    elif evidence.neck is not None:
        advice.append(
            f"if {evidence.watched.name(evidence.neck)} is the scale of other coordinates, or its log, "
            "write these non-centred, as location + scale * raw with raw ~ N(0, 1)"
        )
    elif shapes.banana is not None:
        bent, driver = shapes.banana
        advice.append(
            f"a banana: {name(bent)} follows the square of {name(driver)}; take what is left of it as "
            "the parameter instead, or a flow"
        )
    if shapes.straight is not None:
        a, b, correlation = shapes.straight
        advice.append(
            f"{name(a)} and {name(b)} are correlated at {correlation:.5g}; if one is an intercept, "
            "centre and standardise the predictor that belongs to the other"
        )
    return advice
