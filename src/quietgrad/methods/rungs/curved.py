"""A bent Gaussian: skewed coordinates, bananas and funnels, without a program of its own."""

from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float

from ...evaluation.elbo_terms import Difference, paired_difference
from ...evaluation.points import sobol_pairs
from ...families import Curved, FullRank, HasMoments, MeanField
from ...families.bases import Normal
from ...families.bend import HostBend
from ...session import Candidate
from ...session.clock import OPTIMISE
from ...solvers import Stop, drive
from ...solvers.bending import Bending
from ...status import Status
from ..method import Ending, started_from
from .evidence import Evidence
from .full_rank import FullRankRung, unit
from .rung import AbstractRung

if TYPE_CHECKING:
    from ..auto import Fit


class CurvedRung(AbstractRung):
    """Rounds of `solver` on the host from the Gaussian below, until one gains less than `fine` times the
    gain that is worth going on for: a round costs far less than to compile a flow. In high dimensions
    it is `fine_each` for each coordinate: a mean that is 0.045 sds off costs 1e-3, half of what a
    verdict can tell.

    The bend is triangular. Which coordinates come first is seen from `pairs` pairs of draws: by
    T_ijj = E[s_i (u_j^2 - 1)], with s what the Gaussian's score leaves of the target's, coordinate i
    drives the scale of j, or follows its square. Both orders are tried for a round, and the better one
    goes on for at most `rounds`, unless its first one clearly gained less than that. Up to `most_dim`
    coordinates: there are three parameters for each pair, and their noise adds up.
    """

    title: ClassVar[str] = "a bent Gaussian"
    compiles: ClassVar[bool] = False

    solver: Bending = Bending()
    fine: float = 0.05
    fine_each: float = 1e-3
    pairs: int = 256
    rounds: int = 4
    most_dim: int = 100

    def refuses(self, fit: "Fit") -> str | None:
        """Where the full-rank Gaussian is refused, in high dimensions, and for other bases."""
        q = fit.problem.q
        if q.dim > self.most_dim:
            return f"the bend of {q.dim} coordinates has too many parameters"
        if not isinstance(q.base, Normal):
            return "it is a map of normal draws"
        return FullRankRung().refuses(fit) if q.dim > 1 else None

    def mends(self, evidence: Evidence) -> bool:
        """Whatever a Gaussian cannot follow, but not several modes."""
        return isinstance(evidence.q, HasMoments) and not evidence.modes

    def solve(self, fit: "Fit", below: Candidate) -> Ending | None:
        """The better of two orders."""
        session = fit.session
        gaussian = below.q
        if isinstance(gaussian, MeanField):
            gaussian = started_from(unit(gaussian), gaussian, session)
        if not isinstance(gaussian, FullRank):
            return None
        with session.clock.phase(OPTIMISE):
            order = self._order(fit, gaussian)
        fine = max(self.fine * fit.gain, self.fine_each * gaussian.dim)
        # A round for each order, and the others for the better one.
        stop = Stop(gain=fine, iterations=self.solver.length)
        run = None
        for each, name in {order: "drivers first", order[::-1]: "drivers last"}.items():
            start = below._replace(q=bent(gaussian, each), step=session.steps)
            tried = drive(self.solver, start, session, stop, name=f"bend, {name}")
            if run is None or paired_difference(tried.best.terms, run.best.terms).nats > 0:
                run = tried
        assert run is not None
        first = run.feedback.change if run.feedback is not None else Difference(0.0, 0.0)
        if not first.clearly_below() and first.non_negative.clearly_below(fine):
            session.choose(below._replace(step=session.steps))
            return None
        rounds = (2**self.rounds - 1) * self.solver.length
        stop = Stop(gain=fine, patience=1, iterations=rounds, conclusive=True, keep="last", falling=True)
        start, state = run.best._replace(step=session.steps), run.state
        if first.clearly_below():
            assert isinstance(start.q, Curved)
            state = self.solver.lost(state, start.q)
        run = drive(self.solver, start, session, stop, name="bend", state=state)
        session.choose(run.best)
        change = run.feedback.change if run.feedback is not None else Difference(0.0, 0.0)
        session.note("bend", elbo=run.best.terms.elbo, gained=change.nats, error=change.error)
        if change.non_negative.clearly_below(fit.gain):
            return Status.CONVERGED, f"the last round of bending gained {change}"
        return Status.BUDGET, f"bending the Gaussian still gained {change} in its last round"

    def _order(self, fit: "Fit", gaussian: FullRank) -> tuple[int, ...]:
        """Coordinates by what their third derivatives with others say, the largest first."""
        session, dim = fit.session, gaussian.dim
        u = sobol_pairs(gaussian.base, self.pairs, dim, session.rng("order"))
        with np.errstate(all="ignore"):
            slope = session.points(gaussian.host_transport(u))[1] @ gaussian.host_root() + u
        strength = _third(u, np.where(np.isfinite(slope), slope, 0.0))
        return tuple(int(i) for i in np.argsort(-strength, kind="stable"))


def bent(gaussian: FullRank, order: tuple[int, ...]) -> Curved:
    """The Gaussian itself, as one whose bend moves nothing yet."""
    dim = gaussian.dim
    still = HostBend(np.zeros((4, dim)), np.zeros((3, dim * (dim - 1) // 2)), order)
    return Curved.made_of(still, gaussian)


def _third(
    u: Float[np.ndarray, "draws dim"], slope: Float[np.ndarray, "draws dim"]
) -> Float[np.ndarray, " dim"]:
    """sum_{j != i} T_ijj^2 for every i."""
    third = slope.T @ (u**2 - 1) / len(u)
    np.fill_diagonal(third, 0.0)
    return np.sum(third**2, axis=1)
