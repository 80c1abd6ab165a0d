"""A mixture of Gaussians, for several modes and crossed ridges: components where the mass is."""

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...diagnostics.draws import Draws, draw
from ...evaluation.elbo_terms import paired_difference
from ...families import AbstractFamily, Components, FullRank, HasMoments, Mixture
from ...session import Candidate
from ...session.clock import OPTIMISE
from ...solvers import MixtureNewton, Run, Stop, drive
from ...status import Status
from ..method import Ending
from ..mixture_starts import at_modes, at_parts
from .evidence import Evidence
from .full_rank import FullRankRung
from .rung import AbstractRung

if TYPE_CHECKING:
    from ..auto import Fit


class MixtureRung(AbstractRung):
    """Components at the modes that climbs find, and at parts of weighted draws; then Newton steps of all.

    `climbs` climbs of `trials` trial steps begin far away; the `most` best of their modes become
    components. Without several modes, `counts` components in turn are fitted to `draws` weighted draws of
    the answer so far, as long as each count clearly gains `faint` times the gain: components are cheap,
    and a mixture that is the posterior is found to all digits. Runs take at most `steps` Newton steps.
    In more than `most_dim` coordinates weighted draws say little, and only modes are a reason to try.
    Components without which the ELBO does not clearly fall by `faint` times the gain are removed.
    """

    title: ClassVar[str] = "a mixture of Gaussians"
    compiles: ClassVar[bool] = False
    family: ClassVar[type[AbstractFamily] | None] = Mixture

    newton: MixtureNewton = MixtureNewton()
    climbs: int = 32
    trials: int = 40
    most: int = 24
    draws: int = 1024
    counts: tuple[int, ...] = (2, 4, 8, 16)
    steps: int = 40
    faint: float = 0.004
    most_dim: int = 10

    def refuses(self, fit: "Fit") -> str | None:
        """Newton steps need Hessians on all rows."""
        if fit.problem.q.dim > 1:
            return FullRankRung().refuses(fit)
        if fit.problem.batch_size is not None or not fit.auto.fixed_draws:
            return "Newton steps need all rows"
        suits = fit.auto.curvature.suits(fit.session.points, FullRank.unit(1, fit.problem.q.dtype))
        return None if suits else "the target cannot be differentiated twice"

    def mends(self, evidence: Evidence) -> bool:
        """Several modes; in few dimensions whatever is neither a neck nor a bend, such as an X."""
        if not isinstance(evidence.q, HasMoments):
            return False
        shapes = evidence.shapes
        bent = shapes.funnel is not None or shapes.banana is not None
        return bool(evidence.modes) or (evidence.q.dim <= self.most_dim and not bent)

    def solve(self, fit: "Fit", below: Candidate) -> Ending | None:
        """The best mixture found; None if no component has a finite ELBO."""
        session, faint = fit.session, self.faint * fit.gain
        drawn = self._drawn(fit, below.q, 0)
        with session.clock.phase(OPTIMISE):
            modes = at_modes(
                fit.auto.curvature.mode,
                session.points,
                drawn,
                session.rng("mixture climbs"),
                session.check,
                climbs=self.climbs,
                trials=self.trials,
                most=self.most,
            )
        best: Run | None = None
        if modes is not None and len(modes.loc) > 1:
            best = self._run(fit, modes, faint, f"{len(modes.loc)} modes")
        if below.q.dim <= self.most_dim:
            best = self._grown(fit, drawn, best, faint)
        if best is None:
            return None
        answer = self._pruned(fit, best.best, faint)
        session.choose(answer)
        session.note("mixture", components=answer.q.count, elbo=answer.terms.elbo)
        if best.stationary:
            return Status.CONVERGED, f"Newton steps of {answer.q.count} components gain too little"
        return Status.BUDGET, f"Newton steps were still gaining after {self.steps} of them"

    def _grown(self, fit: "Fit", drawn: Draws, best: Run | None, faint: float) -> Run | None:
        """More and more components as parts of weighted draws, while they gain."""
        for number, count in enumerate(self.counts):
            if best is not None:
                if best.best.terms.gap < faint:
                    break
                if count <= best.best.q.count:
                    continue
                drawn = self._drawn(fit, best.best.q, number + 1)
            rng = fit.session.rng("mixture parts", number)
            with fit.session.clock.phase(OPTIMISE), np.errstate(all="ignore"):
                parts = at_parts(drawn, count, rng)
            run = self._run(fit, parts, faint, f"{count} parts")
            if run is None:
                continue
            if best is not None:
                gained = paired_difference(run.best.terms, best.best.terms)
                if not gained.clearly_above(faint):
                    break
            best = run
        return best

    def _run(self, fit: "Fit", start: Components, faint: float, name: str) -> Run | None:
        """Newton steps from a start, if its ELBO is finite."""
        session = fit.session
        q = Mixture.of(start, fit.problem.q.dtype)
        with session.clock.phase(OPTIMISE):
            begun = session.candidate(q, session.steps)
        if not np.isfinite(begun.terms.elbo):
            return None
        stop = Stop(gain=faint, patience=4, iterations=self.steps, conclusive=True)
        return drive(self.newton, begun, session, stop, name=f"mixture of {name}")

    def _pruned(self, fit: "Fit", answer: Candidate, faint: float) -> Candidate:
        """The mixture without components that it does not need, by the evaluator's draws."""
        assert isinstance(answer.q, Mixture)
        for _ in range(answer.q.count - 1):
            now = answer.q.host_components()
            least = int(np.argmin(now.log_weights))
            others = Components(*(np.delete(part, least, axis=0) for part in now))
            with fit.session.clock.phase(OPTIMISE):
                found = fit.session.candidate(Mixture.of(others, answer.q.dtype), answer.step)
            if paired_difference(answer.terms, found.terms).clearly_above(faint):
                break
            answer = found
        return answer

    def _drawn(self, fit: "Fit", q: AbstractFamily, number: int) -> Draws:
        session = fit.session
        with session.clock.phase(OPTIMISE):
            return draw(q, session.points, session.rng("mixture draws", number), self.draws)
