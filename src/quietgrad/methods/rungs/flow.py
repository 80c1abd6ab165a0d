"""A flow in the coordinates of a full-rank Gaussian: what that leaves over is learned by a real NVP."""

from typing import TYPE_CHECKING, ClassVar

from ...families import FullRank, MeanField, WhitenedRealNVP
from ...session import Candidate
from ..method import Ending
from .evidence import Evidence
from .full_rank import FullRankRung
from .rung import AbstractRung, member

if TYPE_CHECKING:
    from ..auto import Fit


class FlowRung(AbstractRung):
    """Annealed steps of a whitened real NVP from the Gaussian below.

    Up to `most_dim` coordinates: beyond, its networks take long to learn anything.
    """

    title: ClassVar[str] = "a flow in the Gaussian's coordinates"

    most_dim: int = 200

    def refuses(self, fit: "Fit") -> str | None:
        """Where the full-rank Gaussian is refused, and in high dimensions."""
        dim = fit.problem.q.dim
        if dim > self.most_dim:
            return f"a flow in {dim} coordinates takes long to learn anything"
        return FullRankRung().refuses(fit)

    def mends(self, evidence: Evidence) -> bool:
        """Whatever a Gaussian cannot follow."""
        return isinstance(evidence.q, MeanField | FullRank)

    def solve(self, fit: "Fit", below: Candidate) -> Ending | None:
        """The best flow that annealed steps find."""
        return fit.within(member(WhitenedRealNVP, below.q.dim, fit.session), below)
