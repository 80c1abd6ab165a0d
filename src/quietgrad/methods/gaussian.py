"""Gaussians by curvature: the mode, Newton steps from it and from other starts, and what they leave.

For families that can be fitted to a quadratic, on all rows and in moderate dimensions. A part of `Auto`:
its numbers are fields of `Curvature`, which a plan prints.
"""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from ..clock import OPTIMISE
from ..diagnostics.expected_gain import conclusive_gain, expected_gain
from ..families import AbstractFamily, FitsQuadratic, HasMoments
from ..points import Points
from ..recorder import Candidate, Recorder
from ..solvers import ModeSearch, Newton, Run, Stop, drive
from ..solvers.mode import ModeState
from ..status import Status


class Settled(NamedTuple):
    """Newton steps at their end, and the ending if a further one is not expected to gain much."""

    run: Run
    ending: tuple[Status, str] | None

    @property
    def candidate(self) -> Candidate:
        """The answer."""
        return self.run.best


class Curvature(eqx.Module):
    """Where Newton steps pay, and how far they go.

    A Hessian costs about `dim` gradients, and beyond `most_dim` coordinates takes longer than what it
    saves. Families without every covariance gain less by it: `mean_field_dim` and `low_rank_dim` are
    their limits. `newton` steps stop when two in a row gain less than `fine` of the gain that is worth
    going on for: a step costs a thousandth of what stochastic steps would. `refine` averages over more
    draws, for as many steps as every other coordinate but within `refine_steps`, because the noise of a
    curvature costs nats in proportion to its size.
    """

    mode: ModeSearch = ModeSearch()
    newton: Newton = Newton()
    refine: Newton = Newton(gradient_pairs=128, hessian_products=2000)
    most_dim: int = 1000
    mean_field_dim: int = 64
    low_rank_dim: int = 256
    steps: int = 24
    fine: float = 0.1
    refine_steps: tuple[int, int] = (10, 48)
    catch_up: float = 10.0
    trial: int = 4

    def suits(self, points: Points, q: AbstractFamily) -> bool:
        """Whether the family can be fitted to a quadratic, and Hessians can be had and are worth it."""
        if not isinstance(q, FitsQuadratic) or not q.base.variance < float("inf"):
            return False
        most = self.low_rank_dim if q.correlated else self.mean_field_dim
        # Whether a target can be differentiated twice takes long to find out.
        return q.dim <= (self.most_dim if q.any_covariance else most) and points.has_curvature(q.dim)

    def from_mode(
        self, session: Recorder, around: AbstractFamily, q: AbstractFamily, gain: float
    ) -> Run | None:
        """Newton steps in q's family from the mode with its curvature; None if there is no such start.

        The search for the mode begins around the mean of another member of any family.
        """
        assert isinstance(around, HasMoments)
        state = ModeState(np.asarray(around.mean(), float), q)
        start = session.best
        stop = Stop(iterations=1, patience=self.mode.narrowings + 2)
        found = drive(self.mode, start, session, stop, name="mode", state=state)
        if found.feedback is None or not np.isfinite(found.feedback.found.terms.elbo):
            return None
        mode = found.feedback.found._replace(step=session.steps)
        run = self.steps_from(session, mode, gain, name="newton from the mode")
        session.note("mode", elbo=mode.terms.elbo, later=run.best.terms.elbo)
        return run

    def steps_from(
        self,
        session: Recorder,
        start: Candidate,
        gain: float,
        *,
        incumbent: Candidate | None = None,
        name: str = "newton",
    ) -> Run:
        """Newton steps from a start, given up where they would not catch up with an incumbent."""
        assert isinstance(start.q, FitsQuadratic)
        stop = Stop(
            gain=self.fine * gain,
            iterations=self.steps,
            least=self.newton.full_steps_of(start.q) + 1,
            incumbent=incumbent,
            catch_up=self.catch_up,
            trial=self.trial,
        )
        return drive(self.newton, start, session, stop, name=name)

    def settle(self, session: Recorder, run: Run, gain: float) -> Settled:
        """Averaged steps with more draws from where steps led, and what a further one would gain.

        The average begins anew: early steps saw the curvature of another place.
        """
        start = run.best._replace(step=session.steps)
        least, most = self.refine_steps
        steps = min(most, max(least, start.q.dim // 2))
        stop = Stop(patience=steps, iterations=steps, keep="last")
        state = run.best_state.afresh(0)
        refined = drive(self.refine, start, session, stop, name="refine", state=state)
        best = refined.best
        session.choose(best)
        assert isinstance(best.q, FitsQuadratic)
        rng = session.rng("expected gain", session.steps)
        with session.clock.phase(OPTIMISE):
            fitted = refined.best_state.fitted
            left = expected_gain(session.points, best.q, rng, fitted)
            left = conclusive_gain(left, session.points, best.q, rng, fitted, worth=gain)
        done = left.non_negative.clearly_below(gain)
        numbers: dict[str, Any] = {"left": left.nats, "left_error": left.error}
        session.note("newton stop" if done else "newton", elbo=best.terms.elbo, **numbers)
        hint = f"a further Newton step is expected to gain {left}"
        return Settled(refined, (Status.CONVERGED, hint) if done else None)
