"""A Gaussian with a few factors, where a full covariance is out of reach."""

from typing import TYPE_CHECKING, ClassVar

from ...families import LowRank, MeanField
from ...session import Candidate
from ..method import Ending
from .evidence import Evidence
from .full_rank import FullRankRung
from .rung import AbstractRung, member

if TYPE_CHECKING:
    from ..auto import Fit


class LowRankRung(AbstractRung):
    """For minibatches, many coordinates and targets without second derivatives."""

    title: ClassVar[str] = "a low-rank Gaussian"

    def refuses(self, fit: "Fit") -> str | None:
        """Where a full-rank Gaussian can be had, or nothing can be correlated."""
        if fit.problem.q.dim == 1:
            return "one coordinate has no correlations"
        if FullRankRung().refuses(fit) is None:
            return "a full-rank Gaussian can be had"
        return None

    def mends(self, evidence: Evidence) -> bool:
        """Correlations, of an answer that has none."""
        return isinstance(evidence.q, MeanField)

    def solve(self, fit: "Fit", below: Candidate) -> Ending | None:
        """The best low-rank Gaussian."""
        return fit.within(member(LowRank, below.q.dim, fit.session), below)
