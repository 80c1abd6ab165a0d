"""The diagnosis of a fit: evidence, verdict, advice."""

from collections.abc import Sequence

import numpy as np

from ..families import AbstractFamily
from ..targets import Target
from .advice import advise
from .diagnosis import Diagnosis, Ending, Restart
from .evidence import gather
from .verdict import judge


def diagnose(
    target: Target,
    q: AbstractFamily,
    ending: Ending,
    rng: np.random.Generator,
    *,
    draws: int = 2000,
    restarts: Sequence[Restart] = (),
) -> Diagnosis:
    """Some thousand gradients of the target; nothing is compiled that an automatic fit has not compiled,
    apart from the family's own transport and the map to the scale of a model's variables."""
    # Densities that explode far out make overflows on the way; what is not finite is dealt with.
    with np.errstate(all="ignore"):
        evidence = gather(target, q, rng, draws)
    name = evidence.watched.name
    verdict, found = judge(evidence, ending, name, restarts)
    best = evidence.best.some(slice(0, q.dim))
    ratio = np.exp(best.log_ratio)
    return Diagnosis(
        verdict=verdict,
        reasons=(*found.fatal, *found.wrong, *found.fine),
        advice=tuple(advise(verdict, evidence, ending, q, name)),
        khat=evidence.weights.khat,
        khat_limit=evidence.weights.limit,
        effective=evidence.weights.effective,
        draws=evidence.draws.log_q.size,
        bad_share=evidence.draws.bad_share,
        shift=best.shift,
        shift_error=best.shift_error,
        std_ratio=ratio,
        std_ratio_error=ratio * best.log_ratio_error,
        gain=evidence.gain.nats,
        gain_error=evidence.gain.error,
        gradients=evidence.gradients,
    )
