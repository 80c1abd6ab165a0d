"""A full-rank Gaussian, where Newton steps can solve for it."""

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..._util.device import on_device
from ...families import AbstractFamily, FullRank
from ...session import Candidate
from ..method import Ending
from .evidence import Evidence
from .rung import AbstractRung

if TYPE_CHECKING:
    from ..auto import Fit


class FullRankRung(AbstractRung):
    """Every covariance, by Newton steps from the mode and, where they are not conclusive, from the
    mean-field solution, on all rows. It begins the ladder: the mode needs no answer below."""

    title: ClassVar[str] = "a full-rank Gaussian"
    compiles: ClassVar[bool] = False

    def refuses(self, fit: "Fit") -> str | None:
        """One coordinate has no correlations; Newton steps need Hessians on all rows."""
        problem, curvature = fit.problem, fit.auto.curvature
        dim = problem.q.dim
        if dim == 1:
            return "one coordinate has no correlations"
        if problem.batch_size is not None:
            return "Newton steps need all rows"
        if not fit.auto.fixed_draws:
            return "only stochastic steps are asked for"
        if dim > curvature.most_dim:
            return f"the Hessian of {dim} coordinates takes longer than it saves"
        if not curvature.suits(fit.session.points, unit(problem.q)):
            return "the target cannot be differentiated twice"
        return None

    def mends(self, evidence: Evidence) -> bool:
        """Correlations, of an answer that cannot have them all."""
        return not isinstance(evidence.q, FullRank)

    def begin(self, fit: "Fit") -> Ending | None:
        """The best full-rank Gaussian, from the mode if that is conclusive."""
        return fit.within(unit(fit.problem.q), None, rough=True)

    def solve(self, fit: "Fit", below: Candidate) -> Ending | None:
        """The best full-rank Gaussian, from the answer below too."""
        return fit.within(unit(fit.problem.q), below)


def unit(q: AbstractFamily) -> FullRank:
    """Unit scales around zero, in q's precision, without a program."""
    packed = on_device(np.zeros(q.dim * (q.dim + 1) // 2), q.dtype)
    return FullRank(loc=on_device(np.zeros(q.dim), q.dtype), packed=packed, base=q.base)
