"""Batch and match as a method: a start at the mode, then updates until they gain no more."""

import equinox as eqx
import numpy as np

from .._numerics.lbfgs import minimise_together
from .._util.checks import whole
from ..diagnostics.expected_gain import expected_gain
from ..evaluation.elbo_terms import Difference, paired_difference
from ..evaluation.points import Points
from ..families import AbstractFamily, FitsQuadratic, MeanField
from ..families.bases import Normal
from ..session import Candidate
from ..session.clock import OPTIMISE
from ..solvers import BatchAndMatch, Stop, drive
from ..solvers.bam import member
from ..solvers.fixed_draws import finite_start
from ..status import Status
from ..targets import Target
from .method import AbstractMethod, Ending, Problem, Recorder
from .starts import given_start, stationary_start

ENDS = {
    "singular": "the covariance of q became so ill-conditioned that it has no root; try method 'auto'",
    "lost": "gradients at the draws of q were not finite however narrow q became; try method 'auto'",
}


class Bam(AbstractMethod):
    """Full-rank Gaussians by batch and match (Cai et al. 2024). Takes no Hessians.

    The fit has converged if a Newton step is not expected to gain `worth` nats at its end.

    Args:
        draws: gradients an iteration.
        iterations: the most.
        gain: nats that an evaluation must gain to count as progress.
        mode: whether to start at a mode that L-BFGS finds.
        piece: iterations between evaluations.
        patience: evaluations in a row without progress that end the fit.
        mode_iterations: of L-BFGS, for the start.
        worth: nats.
    """

    draws: int = eqx.field(converter=lambda n: whole(n, "draws", least=2), default=16)
    iterations: int = eqx.field(converter=lambda n: whole(n, "iterations", least=1), default=1000)
    gain: float = 0.1
    mode: bool = True
    piece: int = 25
    patience: int = 8
    mode_iterations: int = 60
    worth: float = 0.5

    def refuses(self, target: Target, q: AbstractFamily, batch_size: int | None) -> str | None:
        """A Gaussian with any covariance, on all rows."""
        if batch_size is not None:
            return "the method 'bam' uses all rows; leave batch_size out"
        if target.hyperparameter_count:
            return "the method 'bam' does not fit hyperparameters; use 'auto' or 'sgd'"
        if not (isinstance(q, FitsQuadratic) and q.any_covariance and isinstance(q.base, Normal)):
            return f"the method 'bam' fits Gaussians with any covariance, not {type(q).__name__}"
        return None

    def run(self, problem: Problem, session: Recorder) -> Ending:
        """Find a start, then match."""
        q = problem.q
        assert isinstance(q, FitsQuadratic)
        session.use_points(Points(problem.target, q.dtype))
        given = given_start(problem, session)
        if given is not None and (ending := stationary_start(given, session, self.gain)):
            return ending
        start = self._start(session, q) if given is None else given
        if given is not None and self.mode:
            led = self._at_mode(session, q, given.q)
            start = led if paired_difference(led.terms, given.terms).nats > 0 else given
        solver = BatchAndMatch(draws=self.draws, piece=min(self.piece, self.iterations))
        stop = Stop(gain=self.gain, patience=self.patience, iterations=self.iterations)
        run = drive(solver, start, session, stop, name="iterations")
        if run.end in ENDS:
            return Status.NON_FINITE, ENDS[run.end]
        best = run.best.q
        assert isinstance(best, FitsQuadratic)
        with session.clock.phase(OPTIMISE):
            left = expected_gain(session.points, best, session.rng("expected gain"))
        return self._ending(left, stationary=run.stationary)

    def _ending(self, left: Difference, *, stationary: bool) -> Ending:
        if stationary and not left.clearly_above(self.worth):
            return Status.CONVERGED, f"iterations gain no more; a Newton step is expected to gain {left}"
        return Status.BUDGET, (
            f"iterations gain no more or were used up, but a Newton step is expected to gain {left}; "
            "allow more iterations"
        )

    def _start(self, session: Recorder, q: FitsQuadratic) -> Candidate:
        first = MeanField.start_of(q, session.rng("mean-field"))
        begun = finite_start(session.points, first, session)
        if self.mode:
            return self._at_mode(session, q, begun)
        return session.evaluate(member(q, np.asarray(begun.loc, float), begun.host_covariance()), 0)

    def _at_mode(self, session: Recorder, q: FitsQuadratic, begun: AbstractFamily) -> Candidate:
        """A member at a mode found from another one, as wide as that."""
        assert isinstance(begun, FitsQuadratic)
        mean = self._mode(session, np.asarray(begun.mean(), float))
        return session.evaluate(member(q, mean, begun.host_covariance()), 0)

    def _mode(self, session: Recorder, start: np.ndarray) -> np.ndarray:
        def loss(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            session.check()
            value, slope = session.points(z)
            return -value, -slope

        with session.clock.phase(OPTIMISE), np.errstate(all="ignore"):
            (found,) = minimise_together(loss, start[None], iterations=self.mode_iterations)
        return found.x
