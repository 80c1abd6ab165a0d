"""A full-rank Gaussian, where Newton steps can solve for it."""

from typing import TYPE_CHECKING, ClassVar

from ...families import FullRank
from ...session import Candidate
from ..method import Ending
from .evidence import Evidence
from .rung import AbstractRung, member

if TYPE_CHECKING:
    from ..auto import Fit


class FullRankRung(AbstractRung):
    """Every covariance, by Newton steps from the mode and from the answer below, on all rows."""

    title: ClassVar[str] = "a full-rank Gaussian"

    def refuses(self, fit: "Fit") -> str | None:
        """One coordinate has no correlations; Newton steps need Hessians on all rows."""
        problem, curvature = fit.problem, fit.auto.curvature
        dim = problem.q.dim
        if dim == 1:
            return "one coordinate has no correlations"
        if problem.batch_size is not None:
            return "Newton steps need all rows"
        if dim > curvature.most_dim:
            return f"the Hessian of {dim} coordinates takes longer than it saves"
        if not curvature.suits(fit.session.points, member(FullRank, dim, fit.session)):
            return "the target cannot be differentiated twice"
        return None

    def mends(self, evidence: Evidence) -> bool:
        """Correlations, of an answer that cannot have them all."""
        return not isinstance(evidence.q, FullRank)

    def solve(self, fit: "Fit", below: Candidate) -> Ending | None:
        """The best full-rank Gaussian."""
        return fit.within(member(FullRank, below.q.dim, fit.session), below)
