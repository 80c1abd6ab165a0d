"""Sample average approximation as a method: fixed draws, Newton steps where they suit, a short polish.

Fixed draws overfit families with many parameters per draw, so low-rank, full-rank and flow families
take the mean-field solution as a start. Gaussians find their correlations by Newton steps; the rest is
left to a short run of stochastic steps.
"""

import equinox as eqx
import numpy as np
from jaxtyping import Float

from .. import estimators
from .._util.checks import part, whole
from .._util.later import optax
from .._util.random import key_of
from ..estimators.samplers import REGISTRY as SAMPLERS
from ..estimators.samplers import AbstractSampler, Antithetic, Rqmc
from ..evaluation.elbo_terms import paired_difference
from ..evaluation.points import Points, sobol_pairs
from ..families import AbstractFamily, FitsQuadratic, MeanField
from ..session import Candidate
from ..solvers import FixedDraws, Run, Stop, drive
from ..solvers.fixed_draws import finite_start
from ..status import Status
from ..targets import Target
from .gaussian import Curvature
from .method import AbstractMethod, Ending, Problem, Recorder, started_from
from .sgd import Sgd
from .starts import given_start, mean_field_at, stationary_start


class Saa(AbstractMethod):
    """L-BFGS at fixed draws, judged by fresh ones, then a few quiet stochastic steps.

    Args:
        draws: fixed draws to begin with.
        most_draws: they are doubled up to this number, until that gains less than `gain` nats.
        most_iterations: of L-BFGS at each number of draws.
        gain: nats.
        fresh: with False the fixed draws are not judged by fresh ones, as in DADVI (Giordano et al.
            2024).
        sampler: makes the fixed draws; antithetic pairs of Sobol points by default.
        polish_steps: stochastic steps at the end; None is `mean_field_polish_steps` or
            `richer_polish_steps`, by the family.
        polish_rate: Adam's step size for them.
        polish_gain: nats. The fit has converged if the stochastic steps gain less.
        mean_field_polish_steps: for mean-field families.
        richer_polish_steps: for all others.
        checks: evaluations during the stochastic steps.
        curvature: settings of the Newton steps that follow the fixed draws where they suit the family.
    """

    draws: int = 32
    most_draws: int = 1024
    most_iterations: int = 500
    gain: float = 0.1
    fresh: bool = True
    sampler: AbstractSampler = eqx.field(
        converter=lambda given: part(given, SAMPLERS, AbstractSampler, "sampler"),
        default=Antithetic(Rqmc()),
    )
    polish_steps: int | None = None
    polish_rate: float = 0.01
    polish_gain: float = 1.0
    mean_field_polish_steps: int = 500
    richer_polish_steps: int = 3000
    checks: int = 10
    curvature: Curvature = Curvature()

    def __check_init__(self):
        """Numbers of draws and iterations are whole."""
        for name in ("draws", "most_draws", "most_iterations"):
            whole(getattr(self, name), name, least=1)

    def refuses(self, target: Target, q: AbstractFamily, batch_size: int | None) -> str | None:
        """Fixed draws use all rows."""
        if batch_size is not None:
            return "the method 'saa' fixes its draws and uses all rows; leave batch_size out"
        if target.hyperparameter_count:
            return "the method 'saa' does not fit hyperparameters; use 'auto' or 'sgd'"
        reason = estimators.Quiet().refuses(target, q)
        return reason or self.sampler.refuses(self.draws, q.base, q.base_dim)

    def run(self, problem: Problem, session: Recorder) -> Ending:
        """Maximise at growing numbers of draws, start the family there, Newton steps, polish."""
        target, q = problem.target, problem.q
        session.use_points(Points(target, q.dtype))
        given = given_start(problem, session)
        if given is not None and (ending := stationary_start(given, session, self.gain)):
            return ending
        if given is None:
            first = MeanField.start_of(q, session.rng("mean-field"))
        else:
            first = mean_field_at(given)
        start = finite_start(session.points, first, session)
        run = self._fixed(session, session.evaluate(start, 0))
        best, stationary = run.best, run.stationary
        if first is not q:
            held = q.contains(first)
            if given is not None and paired_difference(given.terms, best.terms).nats > 0:
                best, stationary = given._replace(step=best.step), False
            else:
                inside = started_from(q, best.q, session) if held else q
                best = session.evaluate(inside, best.step)
            if held and self.curvature.suits(session.points, best.q):
                run = self.curvature.steps_from(session, best, self.gain)
                best, stationary = run.best, run.stationary
        steps = self.polish_steps
        if steps is None:
            richer = not isinstance(q, FitsQuadratic) or q.correlated
            steps = self.richer_polish_steps if richer else self.mean_field_polish_steps
        if steps:
            stationary = self._polish(session, best, steps)
        if stationary:
            return Status.CONVERGED, "the evaluator's draws see no further gain"
        return Status.BUDGET, "the iterations were used up while the ELBO still rose; allow more"

    def _fixed(self, session: Recorder, start: Candidate) -> Run:
        """The best of growing numbers of draws, until more of them gain too little."""
        solver, count, run = FixedDraws(), self.draws, None
        keep = "better" if self.fresh else "last"
        stop = Stop(gain=self.gain, iterations=self.most_iterations, keep=keep)
        while True:
            before = start if run is None else run.best
            q = before.q
            assert isinstance(q, MeanField)
            state = solver.at(q, self._draws(q, count, session))
            name = f"fixed draws, {count}"
            run = drive(solver, before, session, stop, name=name, state=state)
            count *= 2
            change = paired_difference(run.best.terms, before.terms)
            more = before is start or change.clearly_above(self.gain)
            if not more or count > max(self.draws, self.most_draws):
                return run

    def _draws(self, q: MeanField, count: int, session: Recorder) -> Float[np.ndarray, "draws dim"]:
        """Fixed draws; more of them begin with the fewer ones where the sampler's points do."""
        if self.sampler == Antithetic(Rqmc()):
            return sobol_pairs(q.base, count // 2, q.dim, session.rng("fixed draws"))
        shape, key = (count, q.dim), key_of(session.seed("fixed draws"))
        return np.asarray(
            self.sampler.draw(self.sampler.init(*shape), q.base, shape, q.dtype, key=key), float
        )

    def _polish(self, session: Recorder, start: Candidate, steps: int) -> bool:
        """Stochastic steps with a decaying rate; True if they did not clearly gain much."""
        rate = optax.cosine_decay_schedule(self.polish_rate, steps)
        polish = Sgd(
            estimators.Quiet(), optax.adam(rate), steps, max(1, steps // self.checks), by_clock=False
        )
        before = session.best
        polish.steps_from(session, start)
        change = paired_difference(session.best.terms, before.terms)
        return not change.clearly_above(self.polish_gain)
