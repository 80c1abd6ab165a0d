"""A flow in the coordinates of a full-rank Gaussian: what that leaves over is learned by a real NVP."""

from typing import TYPE_CHECKING, ClassVar

from ...families import HasMoments, WhitenedRealNVP
from ...session import Candidate
from ...session.clock import COMPILE
from ..method import Ending
from .evidence import Evidence
from .full_rank import FullRankRung
from .rung import AbstractRung, member

if TYPE_CHECKING:
    from ..auto import Fit


class FlowRung(AbstractRung):
    """Annealed steps of a whitened real NVP from the Gaussian below.

    Up to `most_dim` coordinates: beyond, its networks take long to learn anything. Not where fewer
    seconds are left than `compilation` times what compiling took so far: the programs of a flow, its
    steps above all, take about 4 times those of a Gaussian (eight schools: 4.8 and 1.3 processor
    seconds), and a compilation cannot be interrupted.
    """

    title: ClassVar[str] = "a flow in the Gaussian's coordinates"

    most_dim: int = 200
    compilation: float = 4.0

    def refuses(self, fit: "Fit") -> str | None:
        """Where the full-rank Gaussian is refused, in high dimensions, and where time is short."""
        dim, left = fit.problem.q.dim, fit.session.left()
        if dim > self.most_dim:
            return f"a flow in {dim} coordinates takes long to learn anything"
        if left is not None and left < self.compilation * fit.session.clock.spent(COMPILE):
            return f"its programs would not be compiled within the {left:.1f} seconds that are left"
        return FullRankRung().refuses(fit)

    def mends(self, evidence: Evidence) -> bool:
        """Whatever a Gaussian cannot follow, and a bent one did not: where that gained, couplings gain
        nothing over it that would be worth their programs (funnels, horseshoes, eight schools)."""
        return isinstance(evidence.q, HasMoments)

    def solve(self, fit: "Fit", below: Candidate) -> Ending | None:
        """The best flow that annealed steps find."""
        return fit.within(member(WhitenedRealNVP, below.q.dim, fit.session), below)
