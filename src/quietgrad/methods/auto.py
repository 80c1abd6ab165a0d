"""auto: the solvers of a fit in turn, with nothing to tune.

Where Hessians can be had, Newton steps begin at the mode with its curvature. Otherwise, and where they
are not conclusive, the mean-field ELBO is maximised at fixed draws, and a richer family starts from that
solution and never ends below it. Annealed stochastic steps gain what is left. The fit ends when going on
is expected to gain less than `gain` nats.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import equinox as eqx

from .._util.checks import whole
from ..diagnostics.expected_gain import expected_gain
from ..diagnostics.propriety.findings import WALL
from ..diagnostics.settings import Diagnostics
from ..estimators import AbstractEstimator, resolve
from ..evaluation.elbo_terms import Difference, paired_difference
from ..evaluation.points import Points
from ..families import AbstractFamily, FitsQuadratic, FullRank, MeanField
from ..session import Candidate
from ..session.clock import EVALUATE, OPTIMISE
from ..solvers import EXHAUSTED, LOST, STATIONARY, Annealed, FixedDraws, Run, Stop, drive
from ..solvers.annealed import why_enough, why_exhausted
from ..solvers.fixed_draws import finite_start, narrower
from ..status import Status
from ..structure import Structure, structure_of
from ..targets import Target
from .gaussian import Curvature
from .ladder import rungs_of, up
from .method import UNSETTLED, AbstractMethod, Ending, Piloted, Problem, Recorder, started_from
from .rungs import RUNGS, AbstractRung, Evidence
from .rungs.evidence import SHORTER
from .starts import given_start, mean_field_start, pilot_modes, pilot_searches, stationary_start


class Auto(AbstractMethod):
    """Needs no tuning. `print(Auto())` shows its plan: solvers, and when one follows another.

    Args:
        estimator: kept for all stochastic steps; "auto" chooses one while they run.
        gain: nats that are worth going on for.
        gain_each: the same for each coordinate, in high dimensions. 1e-4 is a mean that is 0.014
            posterior sds off.
        gain_each_in_batches: the same where steps on minibatches keep every mean in motion. 1e-3 is
            0.045 sds, half of what a verdict can tell; less takes ever longer rounds.
        steps: bound of the stochastic steps.
        by_clock: with False, estimators are compared by gradient evaluations instead of seconds, and a
            fit can be repeated exactly.
        fixed_draws: with False, stochastic steps only.
        curvature: the search for the mode and the Newton steps.
        search: L-BFGS at fixed draws.
        anneal: the rounds of stochastic steps.
        conclusive: Newton steps from the mode are the answer if q is then within this many times `gain`
            of the posterior, by its own draws.
        search_rows: rows at which minibatch fits search.
        coarse: a mean-field solution that is only a start for a richer family is annealed until rounds
            gain less than this many times `gain`.
        many: coordinates beyond which the start of fixed draws is narrowed, if that is better: noise
            adds up over coordinates.
        shrink: by exp(-`shrink`).
        rungs: with `family="auto"`, the kinds of q that are tried above mean-field, the cheapest first.
        close: an answer whose estimated distance from the posterior is below this many times `gain` is
            not left. The estimate is low for a q that is too narrow, hence the small share.
        draws: of the diagnosis that other answers get, enough for a k-hat with a limit of 0.67.
        judged_by: its numbers. Long chains are shorter and half as precise as those of the verdict that
            they predict.
        judged_within: seconds that such a diagnosis may take, or the time of the fit so far if that is
            more: on 10^4 coordinates chains would take longer than any fit. With `by_clock` only.
        compile_for: rungs with programs of their own are tried where there are this many times `gain`
            nats to gain.
    """

    estimator: AbstractEstimator | str = eqx.field(
        converter=lambda given: given if given == "auto" else resolve(given), default="auto"
    )
    gain: float = 0.5
    gain_each: float = 1e-4
    gain_each_in_batches: float = 1e-3
    steps: int = eqx.field(converter=lambda n: whole(n, "steps", least=1), default=200_000)
    by_clock: bool = True
    fixed_draws: bool = True
    curvature: Curvature = Curvature()
    search: FixedDraws = FixedDraws()
    anneal: Annealed = Annealed()
    conclusive: float = 2.0
    search_rows: int = 256
    coarse: float = 10.0
    many: int = 256
    shrink: float = 3.0
    rungs: tuple[AbstractRung, ...] = RUNGS
    close: float = 0.1
    draws: int = 1000
    judged_by: Diagnostics = SHORTER
    judged_within: float = 20.0
    compile_for: float = 0.5

    def refuses(self, target: Target, q: AbstractFamily, batch_size: int | None) -> str | None:
        """What a fixed estimator objects to."""
        del batch_size
        return None if isinstance(self.estimator, str) else self.estimator.refuses(target, q)

    @property
    def chooses_family(self) -> bool:
        """Yes, by climbing a ladder of families."""
        return True

    def run(self, problem: Problem, session: Recorder) -> Ending:
        """Solve for the family that was asked for; for any family, up the ladder as long as it pays."""
        status, hint = self._run(problem, session)
        if status is Status.CONVERGED and problem.start_given:
            # It takes steps that gain nothing, or a gradient of next to nothing, to get here.
            session.confirm_start()
        return status, hint

    def _run(self, problem: Problem, session: Recorder) -> Ending:
        fit = Fit(self, problem, session)
        session.use_points(self._points(problem, session))
        own = None if problem.any_family else fit.own_rung()
        if own is not None and not own.from_gaussian:
            ending = own.solve(fit, fit.start)
            if ending is not None:
                return ending
        steps_only = fit.given is not None and not self.fixed_draws and type(problem.q) is not MeanField
        if steps_only or not problem.q.contains(fit.first):
            return fit.finish(fit.start, far=True)
        if fit.given is not None and problem.batch_size is None:
            ending = stationary_start(fit.given, session, self.curvature.fine * fit.gain)
            if ending is not None:
                return ending
        rungs = rungs_of(fit) if problem.any_family else []
        if rungs:
            return up(fit, rungs)
        if own is None or not own.from_gaussian or fit.given is not None:
            return fit.within(problem.q, None)
        fit.within(FullRank.unit(problem.q.dim, problem.q.dtype), None)
        below = session.best
        ending = own.solve(fit, below)
        return fit.within(problem.q, below) if ending is None else ending

    def pilot(self, problems: Sequence[Problem], session: Recorder) -> list[Piloted] | None:
        """Modes, or searches at few draws; unknown for families that begin at a start of their own."""
        problem, given = problems[0], None
        if problem.start_given:
            with session.clock.phase(EVALUATE):
                given = session.candidate(problem.q, 0)
        firsts = [
            mean_field_start(each, session, given if n == 0 else None, f" {n}")
            for n, each in enumerate(problems)
        ]
        if not self.fixed_draws or not problem.q.contains(firsts[0]):
            return None
        points = self._points(problem, session)
        if self.curved(problem, points, problem.q):
            assert isinstance(problem.q, FitsQuadratic)
            return pilot_modes(self.curvature.mode, points, firsts, problem.q, session)
        return pilot_searches(points, firsts, session, shrink=self.shrink)

    def curved(self, problem: Problem, points: Points, q: AbstractFamily) -> bool:
        """Whether Newton steps are worth it for a family."""
        if not self.fixed_draws or problem.batch_size is not None:
            return False
        return self.curvature.suits(points, q)

    def _points(self, problem: Problem, session: Recorder) -> Points:
        """The target on the host: all rows, or some of them for minibatch fits."""
        target = problem.target
        if problem.batch_size is not None:
            most = max(self.search_rows, problem.batch_size)
            if target.rows > most:
                target = problem.on_some_rows(most, session.rng("rows"))
        return Points(target, problem.q.dtype)


class Fit:
    """A fit by `Auto` under way: its settings, the problem and the session."""

    def __init__(self, auto: Auto, problem: Problem, session: Recorder):
        self.auto, self.problem, self.session = auto, problem, session
        each = auto.gain_each if problem.batch_size is None else auto.gain_each_in_batches
        self.gain = max(auto.gain, each * problem.q.dim)
        self.given = given_start(problem, session)
        # What an ending is held against: the start itself, not the mode or where it was found to lead.
        # A start that was given has been recorded, even if its ELBO is not finite.
        self.start = session.evaluate(problem.q, 0) if session.start is None else session.start
        self.first = mean_field_start(problem, session, self.given)
        self.estimator = None if isinstance(auto.estimator, str) else auto.estimator
        self.evidence: Evidence | None = None  # of the ladder's present answer, for rungs to use

    @functools.cached_property
    def structure(self) -> Structure | None:
        """Globals and blocks of locals of the target, found once; None if it has none that would pay."""
        problem, dim = self.problem, self.problem.q.dim
        # Newton steps have a program with all of the Hessian; in few dimensions that is no waste.
        known = self.auto.curved(problem, self.session.points, FullRank.unit(dim, problem.q.dtype))
        products = self.session.points.products if known else None
        found = structure_of(problem.target, dim, products=products)
        return None if found is None else found.structure

    def own_rung(self) -> AbstractRung | None:
        """The rung that solves for the family that was asked for; None if there is none."""
        able = (rung for rung in self.auto.rungs if isinstance(self.problem.q, rung.families))
        return next((rung for rung in able if rung.refuses(self) is None), None)

    def within(self, q: AbstractFamily, below: Candidate | None, *, rough: bool = False) -> Ending:
        """The best member of q's family, from the mode and from the solution of a simpler family.

        `rough` leaves out the stochastic steps after Newton's, for a member that may be only a start.
        The ending is then `UNSETTLED` if these are expected to gain something.
        """
        auto, session, stationary = self.auto, self.session, False
        curved = auto.curved(self.problem, session.points, q)
        ahead, conclusive = self._newton_starts(q, below) if curved else (None, False)
        if conclusive and ahead is not None:
            settled = auto.curvature.settle(session, ahead, self.gain)
            gained = paired_difference(settled.candidate.terms, ahead.best.terms)
            if not gained.clearly_above(self.gain):
                return settled.ending or self._left_over(settled.candidate, rough=rough)
            # Steps that were stationary gained much once they averaged more draws: the target is far
            # from quadratic there, and another start may lead higher.
            session.note("valley", gained=gained.nats)
            ahead = settled.run
        if below is None:
            below, stationary = self.mean_field(ahead)
        given = self.given
        if given is not None and paired_difference(given.terms, below.terms).nats > 0:
            start, stationary = given._replace(step=session.steps), False
        else:
            start = below if type(below.q) is type(q) else self.embedded(q, below)
        if curved:
            run = auto.curvature.steps_from(
                session, start, self.gain, incumbent=None if ahead is None else ahead.best
            )
            if ahead is not None and paired_difference(ahead.best.terms, run.best.terms).nats >= 0:
                run = ahead
            settled = auto.curvature.settle(session, run, self.gain)
            return settled.ending or self._left_over(settled.candidate, rough=rough)
        if stationary and start is below and (ending := self._nothing_left(start)):
            return ending
        return self.finish(start)

    def _newton_starts(self, q: AbstractFamily, below: Candidate | None) -> tuple[Run | None, bool]:
        """The better of Newton steps from a given start and from the mode, and if it is conclusive."""
        session, curvature, ahead = self.session, self.auto.curvature, None
        if self.given is not None and below is None:
            ahead = curvature.steps_from(session, self.given, self.gain, name="newton from the start")
            if self._conclusive(ahead):
                return ahead, True
        around = self.first if below is None else below.q
        incumbent = None if ahead is None else ahead.best
        found = curvature.from_mode(session, around, q, self.gain, incumbent)
        if found is None:
            return ahead, False
        run, is_mode = found
        if ahead is not None and paired_difference(ahead.best.terms, run.best.terms).nats >= 0:
            return ahead, False
        return run, below is None and is_mode and self._conclusive(run)

    def mean_field(self, ahead: Run | None = None) -> tuple[Candidate, bool]:
        """The mean-field solution, with minibatches and a richer family only roughly; and whether a
        search at fixed draws is stationary there.
        """
        auto, session = self.auto, self.session
        if not auto.fixed_draws:
            start = session.evaluate(self.first, 0)
            run = self.annealed(start, auto.coarse * self.gain, "mean-field", far=True)
            return run.best, False
        start = self._shrunk(finite_start(session.points, self.first, session))
        stop = Stop(gain=self.gain, incumbent=self.given if ahead is None else ahead.best)
        run = drive(auto.search, start, session, stop, name="fixed draws")
        others = ""
        if ahead is not None:
            others = f"; Newton steps from the mode led to {ahead.best.terms.elbo:.2f}"
        session.note("search", elbo=run.best.terms.elbo, others=others)
        if self.problem.batch_size is None or type(self.problem.q) is MeanField:
            return run.best, run.stationary
        if self.given is not None and paired_difference(self.given.terms, run.best.terms).nats > 0:
            return run.best, False
        # Some rows led here; on with all of them while steps are cheap.
        return self.annealed(run.best, auto.coarse * self.gain, "coarse").best, False

    def _left_over(self, start: Candidate, *, rough: bool) -> Ending:
        return UNSETTLED if rough else self.finish(start, near=True)

    def finish(self, start: Candidate, *, near: bool = False, far: bool = False) -> Ending:
        """Annealed steps until going on is not worth it, and how that ended."""
        return self.ending_of(self.annealed(start, self.gain, "anneal", near=near, far=far))

    def ending_of(self, run: Run) -> Ending:
        """How annealed steps ended."""
        if run.state.walls and run.end in (STATIONARY, LOST):
            return Status.NON_FINITE, WALL
        if run.end == LOST:
            return Status.STALLED, "steps of every size lost against the answer before them"
        if run.end == EXHAUSTED:
            return Status.BUDGET, why_exhausted(run, batches=self.problem.batch_size is not None)
        if run.feedback is not None:
            nats, error = run.feedback.change
            self.session.note("stop", gain=nats, error=error)
        left = self._expected_gain(run.best.q)
        if left is not None and left.clearly_above(self.gain):
            hint = f"rounds of steps gain little, but a Newton step is expected to gain {left}"
            return Status.BUDGET, hint
        return Status.CONVERGED, why_enough(run)

    def annealed(
        self,
        start: Candidate,
        gain: float,
        name: str,
        *,
        near: bool = False,
        far: bool = False,
        solver: Annealed | None = None,
    ) -> Run:
        """Rounds of stochastic steps until one clearly gains less than `gain`; by the plan's own solver
        unless another is given."""
        auto = self.auto
        most = auto.steps if solver is None else min(auto.steps, solver.most_steps)
        solver = auto.anneal if solver is None else solver
        solver = dataclasses.replace(
            solver,
            estimator=self.estimator or solver.estimator,
            # Bold steps would only lead away from an optimum that was given.
            near=near or start.q is self.problem.q and self.given is not None,
            far=far,
            most_steps=most,
            gain=gain,
            by_clock=auto.by_clock,
        )
        stop = Stop(
            gain=gain,
            patience=1,
            iterations=most if most < auto.steps else most - start.step,
            # A short round that gains nothing proves little.
            least=solver.length + 1,
            conclusive=True,
            sharp=True,
            falling=True,
        )
        return drive(solver, start, self.session, stop, name=name)

    def _conclusive(self, run: Run) -> bool:
        """Whether Newton steps from the mode are stationary where q is close to the posterior."""
        return run.stationary and run.best.terms.gap < self.auto.conclusive * self.gain

    def embedded(self, q: AbstractFamily, below: Candidate) -> Candidate:
        """The solution of a simpler family as the start of one that contains it."""
        session, inside = self.session, started_from(q, below.q, self.session)
        names: dict[str, Any] = {"family": type(q).__name__, "simpler": type(below.q).__name__}
        session.note("embed", elbo=below.terms.elbo, **names)
        with session.clock.phase(OPTIMISE):
            found = session.candidate(inside, below.step)
        session.record(found)
        return found

    def _shrunk(self, start: MeanField) -> Candidate:
        """The start of a search among many coordinates: narrower, if that has the higher ELBO.

        A wide start of a network spends most of its search on getting narrow, and may end where all
        weights are noise.
        """
        session = self.session
        own = session.evaluate(start, session.steps)
        # A start that was found to lead somewhere is as wide as it should be.
        if self.problem.first is not None or start.dim <= self.auto.many:
            return own
        with session.clock.phase(OPTIMISE):
            inner = session.candidate(narrower(start, self.auto.shrink), own.step)
        return inner if paired_difference(inner.terms, own.terms).nats > 0 else own

    def _expected_gain(self, q: AbstractFamily) -> Difference | None:
        """What a Newton step would still gain, where that can be known: Gaussians on all rows."""
        if self.problem.batch_size is not None or not isinstance(q, FitsQuadratic):
            return None
        if q.dim > self.auto.curvature.most_dim:
            return None
        session = self.session
        with session.clock.phase(OPTIMISE):
            return expected_gain(session.points, q, session.rng("expected gain", session.steps))

    def _nothing_left(self, answer: Candidate) -> Ending | None:
        """The ending of a stationary search, if fresh draws see nothing worth going on for.

        What a search at fixed draws can be wrong about is these draws.
        """
        left = self._expected_gain(answer.q)
        if left is None or not left.non_negative.clearly_below(self.gain):
            return None
        self.session.note("search stop", left=left.nats, left_error=left.error)
        return Status.CONVERGED, f"a further Newton step is expected to gain {left}"
