"""A mixture of Gaussians, for several modes and crossed ridges: components where the mass is."""

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ...diagnostics.draws import Draws, carry, draw
from ...diagnostics.local_mass import Local
from ...diagnostics.psis import smooth
from ...evaluation.elbo_terms import Difference, ElboEvaluator, paired_difference
from ...evaluation.points import sobol_pairs
from ...families import AbstractFamily, Components, FullRank, Mixture
from ...session import Candidate
from ...session.clock import OPTIMISE
from ...solvers import MixtureNewton, Run, Stop, drive
from ...status import Status
from ..method import Ending
from ..mixture_starts import at_modes, at_parts, pooled, together, triangular, weighted, widened
from .evidence import Evidence
from .full_rank import FullRankRung
from .rung import AbstractRung

if TYPE_CHECKING:
    from ..auto import Fit


# Coordinates up to which a step's draws tell gains of some thousandths of a nat.
FEW = 4


class MixtureRung(AbstractRung):
    """Components at the modes that climbs find, or at parts of weighted draws; then Newton steps of all.

    `climbs` climbs of `trials` trial steps begin far away; the `most` best of their modes become
    components, and so do Gaussians at places that the verdict on the answer found to be left out. In up
    to `most_dim` coordinates `counts` components in turn are fitted to `draws` weighted draws of a
    Gaussian `wider` than the answer so far, while they clearly gain `faint` times the gain: a mixture
    that is the posterior is found to all digits. In more coordinates it is `rough` times the gain, which
    is what draws can tell there, and only weighted draws of the answer itself say enough, if they are
    worth `per_number` draws for each number of the components: a mixture of twice as many components, or
    of `parts`, is then fitted to up to `most_draws` of them, every second one from components that are
    wider. Runs take at most `steps` Newton steps. Components without which the ELBO does not clearly
    fall by as much are removed. In few coordinates a trusted answer that is more than `left` nats from
    the posterior by its weights is not the last word: its moments are right, but 0.2 nats leave room for
    a total variation of 0.3 (Pinsker).
    """

    title: ClassVar[str] = "a mixture of Gaussians"
    compiles: ClassVar[bool] = False
    families: ClassVar[tuple[type[AbstractFamily], ...]] = (Mixture,)

    newton: MixtureNewton = MixtureNewton()
    climbs: int = 64
    trials: int = 40
    most: int = 24
    draws: int = 1024
    wider: float = 2.0
    counts: tuple[int, ...] = (2, 4, 8)
    steps: int = 40
    faint: float = 0.004
    rough: float = 0.05
    most_dim: int = 4
    parts: int = 4
    per_number: int = 4
    most_draws: int = 8192
    left: float = 0.2

    def refuses(self, fit: "Fit") -> str | None:
        """Newton steps need Hessians on all rows."""
        if fit.problem.q.dim > 1:
            return FullRankRung().refuses(fit)
        if fit.problem.batch_size is not None or not fit.auto.fixed_draws:
            return "Newton steps need all rows"
        suits = fit.auto.curvature.suits(fit.session.points, FullRank.unit(1, fit.problem.q.dtype))
        return None if suits else "the target cannot be differentiated twice"

    def mends(self, evidence: Evidence) -> bool:
        """Several modes; in few dimensions whatever is left, such as an X; elsewhere what is left of a
        mixture, or of an answer that leaves out mass."""
        if self.most_dim == 0:
            return bool(evidence.modes) and not isinstance(evidence.q, Mixture)
        small = evidence.q.dim <= self.most_dim
        return small or evidence.leaves_out or isinstance(evidence.q, Mixture)

    def improves(self, evidence: Evidence) -> bool:
        """In few dimensions, a trusted answer whose weights say that its shape is another."""
        return evidence.q.dim <= self.most_dim and evidence.gap > self.left

    def solve(self, fit: "Fit", below: Candidate) -> Ending | None:
        """The best mixture found; None if there is none that gains."""
        session, missed = fit.session, _left_out(fit)
        faint = (self.faint if below.q.dim <= FEW else self.rough) * fit.gain
        best = self._at_modes(fit, below, missed, faint)
        if below.q.dim <= self.most_dim:
            best = self._grown(fit, below, best, faint)
        elif self.most_dim > 0:
            best = self._divided(fit, below, best, missed, faint)
        if best is None:
            return None
        answer = self._pruned(fit, best.best, faint)
        count = _count(answer)
        if count == 1 and fit.problem.any_family:
            answer = self._alone(fit, answer)
        session.choose(answer)
        session.note("mixture", components=count, elbo=answer.terms.elbo)
        change = None if best.feedback is None else best.feedback.change
        little = change is not None and change.non_negative.clearly_below(fit.gain)
        if best.stationary or little:
            return Status.CONVERGED, f"Newton steps of {count} components gain too little"
        return Status.BUDGET, f"Newton steps were still gaining after {self.steps} of them"

    def _alone(self, fit: "Fit", answer: Candidate) -> Candidate:
        """A single component as the Gaussian that it is, which other rungs can go on from."""
        assert isinstance(answer.q, Mixture)
        _, (loc,), (root,) = answer.q.host_components()
        with fit.session.clock.phase(OPTIMISE):
            alone = FullRank.of_host(loc, root, answer.q.dtype)
            found = fit.session.candidate(alone, answer.step)
        fit.session.record(found)
        return found

    def _at_modes(self, fit: "Fit", below: Candidate, missed: list[Local], faint: float) -> Run | None:
        """Components at all modes, and at what the answer leaves out; None of a mixture without that."""
        session, rng = fit.session, fit.session.rng("mixture climbs")
        if isinstance(below.q, Mixture) and not missed:
            return None
        drawn = self._drawn(fit, below.q, 0)
        with session.clock.phase(OPTIMISE):
            if isinstance(below.q, Mixture):
                parts = [
                    Local(*part, 0.0, 0.0) for part in zip(*below.q.host_components()[1:], strict=True)
                ]
            else:
                parts = at_modes(
                    fit.auto.curvature.mode,
                    session.points,
                    drawn,
                    rng,
                    session.check,
                    climbs=self.climbs,
                    trials=self.trials,
                    most=self.most,
                )
                if isinstance(below.q, FullRank):
                    mean = np.asarray(below.q.mean(), float)
                    parts = together(parts, [Local(mean, below.q.host_root(), 0.0, 0.0)])
            parts = together(parts, missed)
            modes = weighted(session.points, parts, rng) if len(parts) > 1 else None
        if modes is None or len(modes.loc) < 2 and not missed:
            return None
        # Of places where the answer has next to no mass, one may be left: the posterior is there.
        return self._run(fit, modes, faint, f"{len(modes.loc)} modes")

    def _divided(
        self, fit: "Fit", below: Candidate, best: Run | None, missed: list[Local], faint: float
    ) -> Run | None:
        """Twice as many components by weighted draws of the answer, while they are enough and gain."""
        incumbent, number = below, 0
        if best is not None and self._gained(fit, best.best, below).clearly_above(faint):
            # It has what was left out. Whether that is enough is for the verdict on it to say.
            return best
        best = None
        while incumbent.terms.gap > faint:
            q, number = incumbent.q, number + 1
            count = 2 * q.count if isinstance(q, Mixture) else self.parts
            numbers = count * (q.dim * (q.dim + 3) // 2 + 1)
            asked = min(self.most_draws, max(self.draws, 2 * self.per_number * numbers))
            if count > self.most or self.per_number * numbers > asked:
                break
            drawn = self._weighted_draws(fit, q, missed, asked, number)
            if smooth(drawn.log_weights).effective < self.per_number * numbers:
                break
            with fit.session.clock.phase(OPTIMISE), np.errstate(all="ignore"):
                of = q.host_components() if isinstance(q, Mixture) else None
                parts = at_parts(drawn, count, fit.session.rng("mixture parts", number), of)
            run = self._run(fit, parts, faint, f"{count} parts")
            if run is None or not self._gained(fit, run.best, incumbent).clearly_above(faint):
                break
            best, incumbent, missed = run, run.best, []
        return best

    def _weighted_draws(
        self, fit: "Fit", q: AbstractFamily, missed: list[Local], count: int, number: int
    ) -> Draws:
        """Draws of the answer, wider if it is a mixture, and of Gaussians at what it leaves out."""
        session = fit.session
        if isinstance(q, Mixture):
            q = Mixture.of(widened(q.host_components(), self.wider), q.dtype)
        rng = session.rng("mixture draws", number)
        with session.clock.phase(OPTIMISE):
            drawn = draw(q, session.points, rng, count)
            if not missed:
                return drawn
            others = []
            for local in missed:
                own = FullRank.of_host(local.center, triangular(local.root), q.dtype)
                others.append(draw(own, session.points, rng, max(self.draws // 4, count // 8)))
            return pooled(drawn, q, others, missed)

    def _grown(self, fit: "Fit", below: Candidate, best: Run | None, faint: float) -> Run | None:
        """More and more components as parts of weighted draws, until two counts in a row do not gain."""
        missed = 0
        q = below.q
        for number, count in enumerate(self.counts):
            if best is not None:
                if best.best.terms.gap < faint:
                    break
                if count <= _count(best.best):
                    continue
                q = best.best.q
            drawn = self._drawn(fit, self._wide(q, fit.session.rng("mixture width", number)), number + 1)
            rng = fit.session.rng("mixture parts", number)
            with fit.session.clock.phase(OPTIMISE), np.errstate(all="ignore"):
                parts = at_parts(drawn, count, rng)
            run = self._run(fit, parts, faint, f"{count} parts")
            if run is None:
                continue
            incumbent = below if best is None else best.best
            if self._gained(fit, run.best, incumbent).clearly_above(faint):
                best, missed = run, 0
            elif missed:
                break
            else:
                # A count may have been unlucky with its draws, or not enough to cross a ridge.
                missed = 1
        return best

    def _wide(self, q: AbstractFamily, rng: np.random.Generator) -> FullRank:
        """A Gaussian that is `wider` than q, so that its draws are also where q is too narrow."""
        z = carry(q, sobol_pairs(q.base, self.draws // 2, q.base_dim, rng))[0]
        root = np.linalg.cholesky(np.cov(z.T).reshape(q.dim, q.dim))
        return FullRank.of_host(np.mean(z, axis=0), self.wider * root, q.dtype)

    def _gained(self, fit: "Fit", found: Candidate, incumbent: Candidate) -> Difference:
        """The difference of the two, at more draws where the evaluator's cannot tell."""
        gained, session = paired_difference(found.terms, incumbent.terms), fit.session
        if gained.nats < 0 or gained.clearly_above():
            return gained
        with session.clock.phase(OPTIMISE):
            seed = session.seed("mixture gains")
            evaluator = ElboEvaluator(fit.problem.target, pairs=self.draws // 2, seed=seed)
            return paired_difference(evaluator.terms(found.q), evaluator.terms(incumbent.q))

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
        for _ in range(_count(answer) - 1):
            assert isinstance(answer.q, Mixture)
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


def _left_out(fit: "Fit") -> list[Local]:
    """Gaussians at places that the verdict on the present answer found to be left out."""
    evidence = fit.evidence
    if evidence is None or evidence.found is None:
        return []
    return [place.gaussian for place in evidence.found.missed if place.gaussian is not None]


def _count(answer: Candidate) -> int:
    assert isinstance(answer.q, Mixture)
    return answer.q.count
