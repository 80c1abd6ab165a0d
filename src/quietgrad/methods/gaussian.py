"""Gaussians by curvature: the mode, Newton steps from it and from other starts, and what they leave.

For families that can be fitted to a quadratic, on all rows and in moderate dimensions. A part of `Auto`:
its numbers are fields of `Curvature`, which a plan prints.
"""

from typing import Any, NamedTuple

import equinox as eqx
import numpy as np

from ..diagnostics.expected_gain import conclusive_gain, expected_gain
from ..evaluation.elbo_terms import Difference, paired_difference
from ..evaluation.points import Points
from ..families import AbstractFamily, FitsQuadratic, HasMoments
from ..session import Candidate, Recorder
from ..session.clock import OPTIMISE
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
    curvature costs nats in proportion to its size; or until `still_steps` in a row clearly change less
    than `still` of the gain. Again, at most `rounds` times, while a further step is expected to gain
    more than `faint` of the gain, which is about what rounding leaves.
    """

    mode: ModeSearch = ModeSearch()
    newton: Newton = Newton()
    refine: Newton = Newton(gradient_pairs=128, hessian_products=2000)
    most_dim: int = 1000
    mean_field_dim: int = 64
    low_rank_dim: int = 256
    steps: int = 24
    fine: float = 0.1
    faint: float = 0.002
    refine_steps: tuple[int, int] = (10, 48)
    still: float = 0.01
    still_steps: int = 4
    rounds: int = 16

    def suits(self, points: Points, q: AbstractFamily) -> bool:
        """Whether the family can be fitted to a quadratic, and Hessians can be had and are worth it."""
        if not isinstance(q, FitsQuadratic) or not q.base.variance < float("inf"):
            return False
        most = self.low_rank_dim if q.correlated else self.mean_field_dim
        # Whether a target can be differentiated twice takes long to find out.
        return q.dim <= (self.most_dim if q.any_covariance else most) and points.has_curvature(q.dim)

    def from_mode(
        self,
        session: Recorder,
        around: AbstractFamily,
        q: AbstractFamily,
        gain: float,
        incumbent: Candidate | None = None,
    ) -> tuple[Run, bool] | None:
        """Newton steps in q's family from the mode with its curvature, and whether that is a mode.

        The search for it begins around the mean of another member of any family. None if it finds no
        place at which density and curvature are finite.
        """
        assert isinstance(around, HasMoments)
        state = ModeState(np.asarray(around.mean(), float), q)
        start = session.best
        stop = Stop(iterations=1, patience=self.mode.narrowings + 2)
        found = drive(self.mode, start, session, stop, name="mode", state=state)
        if found.feedback is None or not np.isfinite(found.feedback.found.terms.elbo):
            return None
        first = found.feedback.found._replace(step=session.steps)
        run = self.steps_from(session, first, gain, incumbent=incumbent, name="newton from the mode")
        session.note("mode", elbo=first.terms.elbo, later=run.best.terms.elbo)
        return run, found.state.mode.left < gain

    def steps_from(
        self,
        session: Recorder,
        start: Candidate,
        gain: float,
        *,
        incumbent: Candidate | None = None,
        name: str = "newton",
    ) -> Run:
        """Newton steps from a start; the history shows an `incumbent` as long as that is better."""
        assert isinstance(start.q, FitsQuadratic)
        stop = Stop(
            gain=self.fine * gain,
            iterations=self.steps,
            least=self.newton.full_steps + 1,
            incumbent=incumbent,
        )
        return drive(self.newton, start, session, stop, name=name)

    def settle(self, session: Recorder, run: Run, gain: float) -> Settled:
        """Averaged steps with more draws from where steps led, and what a further one would gain.

        Each round of them begins a new average: early steps saw the curvature of another place. They go
        on while a round clearly gains and so would a further step, however little: in the valley of a
        funnel, or at the rim between two modes, each step gains little, the next one as much, and nats
        lie beyond.
        """
        least, most = self.refine_steps
        steps, faint = min(most, max(least, run.best.q.dim // 2)), self.faint * gain
        stop = Stop(
            gain=self.still * gain,
            patience=self.still_steps,
            iterations=steps,
            least=least,
            conclusive=True,
            keep="last",
        )
        for number in range(self.rounds):
            start, state = run.best._replace(step=session.steps), run.best_state.afresh()
            run = drive(self.refine, start, session, stop, name=f"refine {number}", state=state)
            gained = paired_difference(run.best.terms, start.terms)
            if not gained.clearly_above() or not self._left(session, run).clearly_above(faint):
                break
        session.choose(run.best)
        left = self._left(session, run, worth=gain)
        done = left.non_negative.clearly_below(gain)
        numbers: dict[str, Any] = {"left": left.nats, "left_error": left.error}
        session.note("newton stop" if done else "newton", elbo=run.best.terms.elbo, **numbers)
        hint = f"a further Newton step is expected to gain {left}"
        return Settled(run, (Status.CONVERGED, hint) if done else None)

    def _left(self, session: Recorder, run: Run, worth: float | None = None) -> Difference:
        """What a further step is expected to gain, from enough draws to compare it with `worth`."""
        q, points, fitted = run.best.q, session.points, run.best_state.fitted
        assert isinstance(q, FitsQuadratic)
        rng = session.rng("expected gain", session.steps)
        with session.clock.phase(OPTIMISE):
            left = expected_gain(points, q, rng, fitted)
            if worth is not None:
                left = conclusive_gain(left, points, q, rng, fitted, worth=worth)
            return left
