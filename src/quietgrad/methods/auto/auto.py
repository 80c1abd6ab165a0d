"""auto from start to end: starts that compete, curvature where it can be had, then annealed steps.

Everything begins in the mean-field family, at fixed draws. A richer family starts from that solution and
never ends below it. Gaussian families go on by Newton steps on the target's average gradient and
curvature. What is left is annealed away by stochastic steps. The fit ends when neither the last round
nor a Newton step promises to gain much. A family that cannot hold a mean-field solution explores first.
A start that the user gave is gone on from, and the others have to beat it.
"""

import math
from collections.abc import Sequence

import equinox as eqx

from ..._checks import whole
from ...clock import EVALUATE, OPTIMISE
from ...estimators import AbstractEstimator, resolve
from ...families import AbstractFamily, FitsQuadratic, MeanField
from ...judging import paired
from ...points import Points
from ...recorder import Answer
from ...status import Status
from ...targets import Target
from ..fixed_draws import Climb
from ..given_start import mean_field_at
from ..method import AbstractMethod, Ending, Problem, Recorder, Scouted, started_from
from ..newton import Curved
from .anneal import anneal
from .curvature import from_mode, newton_from, nothing_left, worth_newton
from .explore import explore
from .finish import finish
from .given import better, from_given, near_optimum
from .ladder import ladder, up
from .scouting import scout_climbs, scout_modes
from .stage import Runner
from .starts import compete

# Minibatch fits climb on this many rows.
CLIMB_ROWS = 256
# Nats that a round must gain in the mean-field family when its solution is only a start.
COARSE = 5.0
# Where Newton steps from the mode rest and q is that close to the posterior, by its own draws, in nats,
# no other start is tried.
CONCLUSIVE = 1.0
# Of what fixed draws are overfitted by, the share that more iterations must gain.
OVERFITTED = 0.25
# Coordinates above which the noise of a wide start is more than a climb should start with.
MANY = 256
# Nats for each coordinate that are worth going on for: a mean that is 0.014 sds off costs so many.
GAIN_EACH = 1e-4


class Auto(AbstractMethod):
    """Needs no tuning. `gain` nats are worth going on for, beyond 5,000 dimensions 0.0001 for each;
    `steps` bound the stochastic ones.

    Any `estimator` but "auto" is kept throughout. With `by_clock` off, estimators are compared by
    gradient evaluations instead of seconds, and a fit can be repeated exactly. `fixed_draws=False`
    leaves out the climb at fixed draws and the Newton steps, so that only stochastic steps are taken.
    After `probe_after` seconds of optimisation it is worth looking for another estimator.
    """

    estimator: AbstractEstimator | str = eqx.field(
        converter=lambda given: given if given == "auto" else resolve(given), default="auto"
    )
    gain: float = 0.5
    steps: int = eqx.field(converter=lambda n: whole(n, "steps", least=1), default=200_000)
    anneal_steps: int = 500
    anneal_rate: float | None = None
    by_clock: bool = True
    fixed_draws: bool = True
    probe_after: float = 2.0

    def refuses(self, target: Target, q: AbstractFamily, batch_size: int | None) -> str | None:
        """What a fixed estimator objects to."""
        del batch_size
        return None if isinstance(self.estimator, str) else self.estimator.refuses(target, q)

    @property
    def chooses_family(self) -> bool:
        """Yes, by climbing a ladder of families."""
        return True

    def run(self, problem: Problem, recorder: Recorder) -> Ending:
        """Starts, curvature, annealing; for any family, up the ladder as long as it pays."""
        status, hint = self._run(problem, recorder)
        if status is Status.CONVERGED and problem.start_given:
            # It takes steps that gain nothing, or a gradient of next to nothing, to get here.
            recorder.confirm_start()
        return status, hint

    def _run(self, problem: Problem, recorder: Recorder) -> Ending:
        q, run, given = problem.q, self._runner(problem, recorder), None
        if recorder.judge.rows is not None:
            # Rows differ between the judge's draws: what it finds best is best by chance, among equals.
            recorder.prefer_last()
        if problem.first is not None or problem.start_given:
            # What an ending is held against: the start itself, not where it was found to lead.
            begun = recorder.look(q, 0)
            given = begun if problem.start_given and math.isfinite(begun.terms.elbo) else None
        first = _first(problem, recorder, given)
        steps_only = given is not None and not self.fixed_draws and not isinstance(q, MeanField)
        if steps_only or not q.contains(first):
            return self._explored(run, q, given)
        points = self._points(problem, q, recorder)
        if given is not None and (arrived := nothing_left(run, points, given)):
            return arrived
        rungs = ladder(problem, points, recorder) if problem.any_family else []
        if rungs:
            answer, _ = self._mean_field(run, points, first)
            reached = up(
                run, answer, rungs, lambda below, richer: self._within(run, points, below, richer)
            )
            return self._within(run, points, answer, q) if reached is None else reached
        ahead = None if given is None else from_given(run, points, given)
        if not _conclusive(ahead):
            ahead = better(ahead, from_mode(run, points, first, q, ahead))
        if ahead is not None and _conclusive(ahead):
            answer, arrived = newton_from(run, points, ahead)
            gained, _ = paired(answer.terms, ahead.terms)
            if gained < run.gain:
                return arrived or self._finish(run, points, answer, near=True)
            # Steps that rest have little to gain. If refined ones gain much they are in a valley, such
            # as a funnel's, where means and scales must move together and no step sees how far.
            run.note("valley", answer.step, run.first(q), float("nan"), gained=gained)
            ahead = Curved(answer.q, answer.terms, answer.step)
        answer, rested = self._mean_field(run, points, first, ahead, given)
        return self._within(run, points, answer, q, ahead, given, rested=rested)

    def _explored(self, run: Runner, q: AbstractFamily, given: Answer | None) -> Ending:
        """Bold steps, but not from a good start, then annealed ones: for families without a mean-field
        member.
        """
        at = run.begin(run.recorder.look(q, 0) if given is None else given, "explore")
        if given is not None:
            rates = self._rates(q, near=True)
            at, near = near_optimum(run, at, rates[0], self.anneal_steps)
            if near:
                answer = at.answer._replace(step=at.step)
                return finish(run, answer, rates, (self.anneal_steps, self.steps))
        at, rate = explore(run, at, q.advice.explore_rate, self.steps)
        lengths = max(self.anneal_steps, at.step // 2), self.steps
        return finish(run, at.answer, (rate, rate), lengths)

    def scout(self, problems: Sequence[Problem], recorder: Recorder) -> list[Scouted] | None:
        """Modes, or climbs at few draws; unknown for families that begin by exploring."""
        problem, given = problems[0], None
        if problem.start_given:
            with recorder.clock.phase(EVALUATE):
                given = Answer(problem.q, 0, recorder.terms(problem.q))
        firsts = [
            _first(each, recorder, given if n == 0 else None, f" {n}") for n, each in enumerate(problems)
        ]
        if not self.fixed_draws or not problem.q.contains(firsts[0]):
            return None
        points = self._points(problem, problem.q, recorder)
        if worth_newton(self._runner(problem, recorder), points, problem.q):
            assert isinstance(problem.q, FitsQuadratic)
            return scout_modes(points, firsts, problem.q, recorder)
        return scout_climbs(points, firsts, recorder)

    def _runner(self, problem: Problem, recorder: Recorder) -> Runner:
        return Runner(
            problem,
            recorder,
            None if isinstance(self.estimator, str) else self.estimator,
            by_clock=self.by_clock,
            gain=max(self.gain, GAIN_EACH * problem.q.dim),
            probe_after=self.probe_after,
            fixed_draws=self.fixed_draws,
        )

    def _within(
        self,
        run: Runner,
        points: Points,
        answer: Answer,
        q: AbstractFamily,
        ahead: Curved | None = None,
        given: Answer | None = None,
        *,
        rested: bool = False,
    ) -> Ending:
        """The best member of q's family, from the solution of a simpler one, from the mode, and from a
        member that was given.

        `rested`: the answer is where a climb at fixed draws came to rest.
        """
        curved = worth_newton(run, points, q)
        if curved and ahead is None:
            ahead = from_mode(run, points, answer.q, q)
        beaten = given is not None and paired(answer.terms, given.terms)[0] < 0
        if given is not None and beaten:
            answer, rested = given._replace(step=run.recorder.steps), False
        elif type(answer.q) is not type(q):
            answer, rested = self._richer(run, answer, q), False
        if rested and not curved and (arrived := nothing_left(run, points, answer)):
            return arrived
        if curved:
            start = Curved(answer.q, answer.terms, answer.step)
            # Steps from what was given have been taken.
            answer, arrived = newton_from(run, points, ahead, None if beaten else start)
            if arrived:
                return arrived
        return self._finish(run, points, answer, near=curved)

    def _finish(self, run: Runner, points: Points, answer: Answer, *, near: bool) -> Ending:
        rates = self._rates(answer.q, near=near)
        return finish(run, answer, rates, (self.anneal_steps, self.steps), points)

    def _points(self, problem: Problem, q: AbstractFamily, recorder: Recorder) -> Points:
        """The target as the climb sees it: all rows, or some of them for minibatch fits."""
        target = problem.target
        if problem.batch_size is not None:
            most = max(CLIMB_ROWS, problem.batch_size)
            if target.rows > most:
                target = problem.on_some_rows(most, recorder.rng("rows"))
        points = Points(target, q.dtype)
        recorder.look_with(points)
        return points

    def _mean_field(
        self,
        run: Runner,
        points: Points,
        start: MeanField,
        ahead: Curved | None = None,
        given: Answer | None = None,
    ) -> tuple[Answer, bool]:
        """The mean-field solution, with minibatches and a richer family only roughly; and whether a
        climb ended at rest there. It ends early where a start that was given is out of reach.
        """
        if given is not None and ahead is None:
            ahead = Curved(given.q, given.terms, run.recorder.steps)
        if not self.fixed_draws:
            at = run.begin(run.recorder.look(start, 0), "mean-field")
            return explore(run, at, start.advice.explore_rate, self.steps)[0].answer, False
        # A start that was found to lead somewhere is as wide as it should be.
        wide = run.problem.first is None and start.dim > MANY
        how = Climb(gain=run.gain)
        if not worth_newton(run, points, start):
            # Annealed steps follow where draws mislead, and cost less than another look.
            how = how._replace(overfit=OVERFITTED)
        found = run.recorder.stage(
            "starts",
            lambda: compete(
                points, start, run.recorder, how, ahead=ahead, given=given is not None, draw_in=wide
            ),
        )
        others = "".join(f"; {name} led to {elbo:.2f}" for name, elbo in found.others.items())
        numbers = {"elbo": found.answer.terms.elbo, "start": found.name, "others": others}
        run.note("climb", found.steps, run.first(start), float("nan"), **numbers)
        if run.problem.batch_size is None or type(run.problem.q) is type(start):
            return found.answer, found.rested
        if given is not None and paired(found.answer.terms, given.terms)[0] < 0:
            return found.answer, False
        # Some rows led here; on with all of them while steps are cheap.
        at, rates = run.begin(found.answer, "coarse"), self._rates(start, near=False)
        at, _ = anneal(run, at, rates, self.anneal_steps, self.steps, gain=COARSE, least_rounds=1)
        return at.answer, False

    def _richer(self, run: Runner, answer: Answer, q: AbstractFamily) -> Answer:
        """The solution of a simpler family as the start of one that contains it."""
        inside = started_from(q, answer.q, run.recorder)
        with run.recorder.clock.phase(OPTIMISE):
            terms = run.recorder.terms(inside)
        names = {"family": type(q).__name__, "simpler": type(answer.q).__name__}
        numbers = {"elbo": answer.terms.elbo, **names}
        run.note("embed", answer.step, run.first(inside), float("nan"), **numbers)
        return run.recorder.tell(inside, answer.step, terms)

    def _rates(self, q: AbstractFamily, *, near: bool) -> tuple[float, float]:
        """The first rate of annealing, and what successful rounds may raise it to."""
        if self.anneal_rate is not None:
            return self.anneal_rate, self.anneal_rate
        advice = q.advice
        if near:
            return advice.near_rate, advice.near_rate
        return advice.anneal_rate, advice.most_anneal_rate


def _conclusive(ahead: Curved | None) -> bool:
    return ahead is not None and ahead.rested and ahead.terms.gap < CONCLUSIVE


def _first(
    problem: Problem, recorder: Recorder, given: Answer | None = None, which: str = ""
) -> MeanField:
    """The mean-field start that goes with a problem."""
    if problem.first is not None:
        return problem.first
    if given is not None:
        return mean_field_at(given, problem.q)
    return MeanField.start_of(problem.q, recorder.rng(f"mean-field{which}"))
