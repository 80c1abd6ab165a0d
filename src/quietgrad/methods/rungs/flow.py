"""A flow in the coordinates of a Gaussian: what that leaves over is learned by autoregressive layers."""

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...diagnostics.draws import draw
from ...evaluation.elbo_terms import paired_difference
from ...families import (
    AbstractFamily,
    AbstractFlow,
    AutoregressiveFlow,
    FullRank,
    HasMoments,
    MeanField,
    SplineFlow,
)
from ...families.whitened_layers import deeper as deepened
from ...session import Candidate
from ...session.clock import OPTIMISE
from ...solvers import EXHAUSTED, Annealed, Run
from ...status import Status
from ..method import Ending
from .evidence import Evidence
from .full_rank import FullRankRung
from .rung import AbstractRung, member

if TYPE_CHECKING:
    from ..auto import Fit


class FlowRung(AbstractRung):
    """Annealed steps of an autoregressive flow of `depth` layers from the Gaussian below.

    Compiling takes as long as some ten thousand steps in few dimensions, so that rounds of `anneal` are
    long (three of them at most, each twice as long), and go on until one clearly gains less than `fine`
    times the gain. If the flow is then further
    than `close` times the gain from the posterior, by its own draws, `deeper` layers are added. They are
    another program, so that they must be needed.

    Up to `most_dim` coordinates: beyond, its networks take long to learn anything.
    """

    title: ClassVar[str] = "a flow in the Gaussian's coordinates"
    families: ClassVar[tuple[type[AbstractFamily], ...]] = (AutoregressiveFlow, SplineFlow)

    depth: int = 2
    deeper: int = 4
    anneal: Annealed = Annealed(length=2000, most_steps=14_000)
    fine: float = 0.02
    close: float = 0.2
    draws: int = 1024
    most_dim: int = 200

    def refuses(self, fit: "Fit") -> str | None:
        """Where the full-rank Gaussian is refused, in high dimensions, and where time is short."""
        dim = fit.problem.q.dim
        if dim > self.most_dim:
            return f"a flow in {dim} coordinates takes long to learn anything"
        return self.out_of_time(fit) or FullRankRung().refuses(fit)

    def mends(self, evidence: Evidence) -> bool:
        """Whatever a Gaussian cannot follow, and a bent one did not: where that gained, a flow gains
        nothing over it that would be worth their programs (funnels, horseshoes, eight schools). Not
        several modes, of which it begins at one: gradients at its draws say nothing of the others."""
        return isinstance(evidence.q, HasMoments) and not evidence.modes

    def solve(self, fit: "Fit", below: Candidate) -> Ending | None:
        """The best flow that annealed steps find."""
        session, asked, gain = fit.session, fit.problem.q, self.fine * fit.gain
        kind = type(asked) if isinstance(asked, self.families) else AutoregressiveFlow
        flow = member(kind, below.q.dim, session, depth=self.depth)
        start = fit.embedded(flow, below._replace(q=self._gaussian(fit, below.q), step=session.steps))
        run = fit.annealed(start, gain, "flow", solver=self.anneal)
        ending = _ending(fit, run)
        if run.best.terms.gap < self.close * fit.gain or self.refuses(fit) is not None:
            return ending
        more = member(kind, below.q.dim, session, depth=self.deeper)
        assert isinstance(more, AbstractFlow)
        assert isinstance(run.best.q, AbstractFlow)
        start = session.candidate(deepened(run.best.q, more), session.steps)
        deeper = fit.annealed(start, gain, "deeper flow", solver=self.anneal)
        if not paired_difference(deeper.best.terms, run.best.terms).clearly_above():
            session.choose(run.best._replace(step=session.steps))
            return ending
        return _ending(fit, deeper)

    def _gaussian(self, fit: "Fit", q: AbstractFamily) -> AbstractFamily:
        """The Gaussian below, or the one with the mean and covariance of an answer of another kind."""
        if isinstance(q, FullRank | MeanField):
            return q
        session = fit.session
        with session.clock.phase(OPTIMISE):
            z = draw(q, session.points, session.rng("whitening"), self.draws).z
        root = np.linalg.cholesky(np.cov(z.T).reshape(q.dim, q.dim))
        return FullRank.of_host(np.mean(z, axis=0), root, q.dtype, q.base)


def _ending(fit: "Fit", run: Run) -> Ending:
    """How the steps ended; all may have been taken, and the last round have gained next to nothing."""
    change = None if run.feedback is None else run.feedback.change
    if run.end == EXHAUSTED and change is not None and change.non_negative.clearly_below(fit.gain):
        return Status.CONVERGED, f"the last round of steps of the flow gained {change}"
    return fit.ending_of(run)
