"""The diagnosis of a fit: evidence, verdict, advice."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .._numerics.lapack import one_blas_thread
from .._util.progress import progress_line
from ..families import AbstractFamily
from ..targets import Target
from .advice import advise
from .budget import Budget
from .diagnosis import Diagnosis, Ending, Restart, Verdict
from .evidence import Evidence, gather
from .long_chains import run_on
from .settings import DEFAULT, Diagnostics
from .verdict import Findings, correctable, judge


class Examined(NamedTuple):
    """What was found out about q, and what follows from it."""

    evidence: Evidence
    verdict: Verdict
    findings: Findings


def examine(
    target: Target,
    q: AbstractFamily,
    ending: Ending,
    rng: np.random.Generator,
    draws: int,
    *,
    restarts: Sequence[Restart] = (),
    settings: Diagnostics = DEFAULT,
    budget: Budget | None = None,
) -> Examined:
    """Evidence and verdict; where q is off and weights do not correct it, long chains may."""
    budget = Budget() if budget is None else budget
    # Densities that explode far out make overflows on the way; what is not finite is dealt with.
    with one_blas_thread(), np.errstate(all="ignore"):
        evidence = gather(target, q, rng, draws, settings, budget)
        verdict, found = judge(evidence, ending, restarts)
        if verdict is Verdict.DO_NOT_TRUST and correctable(evidence, found):
            assert evidence.begun is not None
            continued = run_on(evidence.begun, evidence.watched, rng, settings, budget)
            evidence = evidence._replace(chain_draws=continued, further=tuple(budget.further))
            verdict, found = judge(evidence, ending, restarts)
    return Examined(evidence, verdict, found)


def diagnose(
    target: Target,
    q: AbstractFamily,
    ending: Ending,
    rng: np.random.Generator,
    *,
    draws: int = 2000,
    restarts: Sequence[Restart] = (),
    seconds: float = math.inf,
    settings: Diagnostics = DEFAULT,
    progress: bool | None = False,
) -> Diagnosis:
    """Some thousand gradients of the target, as far as `seconds` allow, and many more where long chains
    are needed; nothing is compiled that an automatic fit has not compiled, apart from a flow's own
    transport and the map to the scale of a model's variables."""
    with progress_line(show=progress) as show:
        budget = Budget(seconds, reserve=settings.reserve, show=show)
        evidence, verdict, found = examine(
            target, q, ending, rng, draws, restarts=restarts, settings=settings, budget=budget
        )
    best, watched = evidence.best, evidence.watched
    ratio = np.exp(best.log_ratio)
    return Diagnosis(
        verdict=verdict,
        reasons=(*found.fatal, *found.wrong, *found.fine),
        advice=tuple(advise(verdict, evidence, ending, q)),
        khat=evidence.weights.khat,
        khat_limit=evidence.weights.limit,
        effective=evidence.weights.effective,
        draws=evidence.draws.log_q.size,
        bad_share=evidence.draws.bad_share,
        shift=watched.spread_out(best.shift, 0.0),
        shift_error=watched.spread_out(best.shift_error, math.inf),
        std_ratio=watched.spread_out(ratio, 1.0),
        std_ratio_error=watched.spread_out(ratio * best.log_ratio_error, math.inf),
        gain=evidence.gain.nats,
        gain_error=evidence.gain.error,
        gradients=evidence.gradients,
        seconds=budget.spent,
        limit=seconds,
        unseen=evidence.unseen,
        further=evidence.further,
        chain_draws=evidence.chain_draws,
    )
