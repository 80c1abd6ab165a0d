"""What the present answer of a ladder is worth: the verdict that it would get, and why.

The verdict is that of `diagnose`, from draws of its own: importance weights of q's draws, short chains
from them, climbs from far away. All of it runs on the host with the program of values and gradients that
the fit has, so that asking costs far less than to compile a flow.
"""

import math
from typing import NamedTuple

import numpy as np

from ...diagnostics.budget import Budget
from ...diagnostics.diagnose import examine
from ...diagnostics.diagnosis import Ending, Verdict
from ...diagnostics.evidence import Evidence as Found
from ...diagnostics.settings import Diagnostics
from ...diagnostics.shapes import Shapes, neck
from ...families import AbstractFamily
from ...session import Candidate
from ...status import Status
from ...targets import Target

# A diagnosis by which a rung is judged: long chains are shorter and half as precise as those of the
# verdict that they predict, and are not tried again with smaller steps.
SHORTER = Diagnostics(
    warm_up=(8,),
    most_moves=32,
    precise=0.4,
    long_leapfrogs=(32,),
    long_acceptance=((0.9, 0.96),),
)


class Evidence(NamedTuple):
    """Of the answer `q`: `gap`, about how many nats its ELBO is below the log evidence, and a diagnosis.

    `verdict` is what `diagnose` would say of q if the fit ended here, `reasons` are its sentences, the
    gravest first, and `found` is all that it is made of. Without a diagnosis they are None and empty:
    with minibatches, where the program at hand does not see all rows.
    """

    q: AbstractFamily
    gap: float
    verdict: Verdict | None = None
    reasons: tuple[str, ...] = ()
    found: Found | None = None

    @classmethod
    def of(
        cls,
        target: Target | None,
        answer: Candidate,
        rng: np.random.Generator,
        draws: int,
        settings: Diagnostics,
        seconds: float = math.inf,
    ) -> "Evidence":
        """Some thousand gradients at draws of the answer, as far as `seconds` allow; only its gap if
        there is no target to ask."""
        q, gap = answer.q, answer.terms.gap
        if target is None:
            return cls(q, gap)
        ending = Ending(Status.CONVERGED, "")
        budget = Budget(seconds)
        found, verdict, why = examine(target, q, ending, rng, draws, settings=settings, budget=budget)
        # Normal log weights of variance v are worth exp(-v) of their number; more draws see more of it.
        share = found.weights.effective / found.draws.log_q.size
        if math.isnan(answer.terms.variance):
            gap = 0.5 * float(np.var(found.draws.log_weights[found.draws.finite]))
        gap = max(gap, -0.5 * math.log(share) if share > 0 else math.inf)
        return cls(q, gap, verdict, (*why.fatal, *why.wrong, *why.fine), found)

    @property
    def trusted(self) -> bool:
        """Whether the answer would be trusted as it is."""
        return self.verdict is Verdict.TRUST

    @property
    def correctable(self) -> bool:
        """Whether its draws would be, once they are weighted by importance or moved on by chains."""
        return self.verdict is Verdict.CORRECTED

    @property
    def khat(self) -> float:
        """The shape of the weights' tail; infinite if unknown."""
        return float("inf") if self.found is None else self.found.weights.khat

    @property
    def shapes(self) -> Shapes:
        """Funnel (a neck), banana (curvature) and strong correlation, by coordinates."""
        return Shapes() if self.found is None else self.found.shapes

    @property
    def neck(self) -> float:
        """How closely the scale of many coordinates together follows one.

        By states of chains, which show it where q cannot, or by q's draws, which enter it further.
        """
        if self.found is None:
            return 0.0
        return max(self.found.shapes.neck, neck(self.found.draws.z, self.found.settings))

    @property
    def modes(self) -> tuple[np.ndarray, ...]:
        """Places of several modes that q does not cover, or q's own and one that it leaves out."""
        if self.found is None or self.found.covers:
            return ()
        if self.found.elsewhere is not None:
            return self.found.draws.z.mean(axis=0), self.found.elsewhere.place
        return () if self.found.modes is None else tuple(self.found.modes)

    @property
    def leaves_out(self) -> bool:
        """Whether there is mass where q never looks."""
        return self.found is not None and self.found.elsewhere is not None
