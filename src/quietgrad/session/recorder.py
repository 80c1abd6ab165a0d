"""The recorder of a fit, put together from its evaluators, its answers, its limits and its ending.

A method records what it has found and asks when to stop; it keeps none of this itself.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Array, Key, PyTree

from .._util.progress import Show, progress_line
from .._util.random import Streams, key_of
from ..diagnostics.propriety import DEFAULT as PROPRIETY
from ..diagnostics.propriety import log_density_probe
from ..estimators import AbstractEstimator
from ..evaluation.elbo_terms import Difference, ElboEvaluator, ElboTerms, paired_difference
from ..evaluation.points import RESOLVED, Points, resolved
from ..families import AbstractFamily
from ..status import Status
from .checkpoint import Checkpoint, NullCheckpoint, Slot, Stored
from .clock import COMPILE, EVALUATE, OPTIMISE, Clock, Interrupts, Limits, Pace
from .endings import Answers, Evidence, check_divergence, compare, verify_status
from .history import Decision, History, Progress
from .problem import DEFAULT, Callback, Candidate, Evaluation, Evaluators, Moment, Problem

NO_CHECKPOINT = NullCheckpoint()
# Draws of a stochastic step: a pair, as the usual estimator takes.
STEP_DRAWS = 2
T = TypeVar("T")
Row = dict[str, float | int]


class Recorder:
    """One for each fit. `seconds` limits the whole call, `optimise_seconds` only the optimisation."""

    def __init__(
        self,
        problem: Problem,
        *,
        seconds: float | None = None,
        optimise_seconds: float | None = None,
        evaluation: Evaluation = DEFAULT,
        callback: Callback | None = None,
        progress: bool | None = False,
        key: Key[Array, ""],
        clock: Clock | None = None,
        checkpoint: Checkpoint | NullCheckpoint = NO_CHECKPOINT,
        interrupts: Interrupts | None = None,
    ):
        self.problem, self.evaluation, self.callback = problem, evaluation, callback
        self.clock = Clock() if clock is None else clock
        self.history, self.decisions, self.steps = History(), [], 0
        self.estimator: AbstractEstimator | None = None
        interrupts = Interrupts() if interrupts is None else interrupts
        self.limits = Limits(self.clock, seconds, optimise_seconds, interrupts)
        self.interrupt, self.left = interrupts.ask, self.limits.left
        self._show: Show = lambda sight: None
        self.progress = Progress()
        self._shown, self.pace = progress, Pace()
        self.factor = PROPRIETY.displaced
        self._stationary_start, self._inside = False, None
        streams = Streams(key)
        self.seed, self.rng = streams.seed, streams.rng
        self._points: Points | None = None
        self.checkpoint = checkpoint
        if checkpoint.record is not None:
            self.clock.go_on(checkpoint.record["clock"], checkpoint.record["programs"])
        self.evaluators = Evaluators(problem, evaluation, self.seed, self.rng)
        # Rows differ between the evaluator's draws: what it finds best is best by chance, among equals.
        self.answers = Answers(prefer_last=self.evaluator.rows is not None)
        # Evaluates the log density when something may be wrong, on the rows that judge.
        self.probe = log_density_probe(self.evaluators.on_the_way.target, problem.q.dtype)

    # Answers

    @property
    def start(self) -> Candidate | None:
        """The first answer that was recorded."""
        return self.answers.start

    @property
    def best(self) -> Candidate:
        """The best answer so far; the start, before anything was recorded."""
        if self.answers.best is None:
            with self.clock.phase(EVALUATE):
                return Candidate(self.problem.q, 0, self.terms(self.problem.q))
        return self.answers.best

    @property
    def answer(self) -> Candidate:
        """What the fit returns: the family's best answer, or the last one if that is preferred.

        A fit that ended while it was still in a simpler family returns that solution as a member of the
        family that was asked for, if it can hold it.
        """
        return self.answers.chosen(self._own_best())

    def choose(self, answer: Candidate) -> Candidate:
        """Go back to an earlier answer: what was recorded since is not the better one beyond doubt."""
        own = answer if self._is_own(answer.q) else self.answers.own
        self.answers = self.answers._replace(best=answer, own=own)
        return answer

    def confirm_start(self) -> None:
        """The method found the start that was given to be stationary, so it may be the answer."""
        self._stationary_start = True

    def prefer_last(self) -> None:
        """Return the last answer unless an earlier one is clearly better: for methods without tests."""
        self.answers = self.answers._replace(prefer_last=True)

    @property
    def evaluator(self) -> ElboEvaluator:
        """Whose draws compare the answers of this fit."""
        return self.evaluators.on_the_way

    def terms(self, q: AbstractFamily) -> ElboTerms:
        """q at the evaluator's draws, charged to whatever phase this is."""
        return self.evaluator.terms(q)

    def can_evaluate(self) -> bool:
        """Whether an evaluation like the last one would keep within its share of the time."""
        return self.pace.affordable(self.clock, self.evaluation.share)

    def candidate(self, q: AbstractFamily, step: int, state: PyTree = None) -> Candidate:
        """q with its terms at the evaluator's draws, charged to whatever phase this is.

        One that is better by far only where the density is rounding noise has no finite ELBO.
        """
        terms = self.pace.timed(self.clock, lambda: self.terms(q))
        if self._rises(terms) and not self._resolved(terms):
            terms = terms._replace(values=np.full_like(terms.values, -np.inf))
        return Candidate(q, step, terms, state)

    def _rises(self, terms: ElboTerms) -> bool:
        """Whether an ELBO is finite, and above the best one by more than noise could hide."""
        best = self.answers.best
        return best is not None and best.terms.elbo + RESOLVED < terms.elbo < np.inf

    def _resolved(self, terms: ElboTerms) -> bool:
        if self._points is None:
            return True
        return resolved(self._points, terms.mean, terms.std, self.rng("resolution"))

    def sharper(
        self, found: Candidate, best: Candidate, change: Difference, gain: float, steps: int
    ) -> Difference:
        """The change from `best` to `found` at more draws and all rows, until it is clear whether it is
        worth `gain` nats.

        At most as many rows are evaluated as the last `steps` used, which is half of what another round
        would use, or as many as nobody notices. `change` itself if there is no room for more.
        """
        evaluator = self.evaluators.precise
        if evaluator is None or not math.isfinite(change.nats):
            return change
        target = self.problem.whole
        rows = max(1, target.rows)
        used = STEP_DRAWS * steps * (self.problem.batch_size or rows)
        used = max(used, self.evaluation.unnoticed // self.problem.q.dim)
        each = 2 * 2 * evaluator.pairs * rows
        times = 1
        while times * each <= used and not change.conclusive(gain):
            change = paired_difference(
                evaluator.terms(found.q, times=times), evaluator.terms(best.q, times=times)
            )
            times *= 4
        return change

    def evaluate(self, q: AbstractFamily, step: int, state: PyTree = None) -> Candidate:
        """Evaluate q and record it, on the clock of evaluations."""
        with self.clock.phase(EVALUATE):
            found = self.candidate(q, step, state)
        self.record(found)
        return found

    def record(self, answer: Candidate) -> Row:
        """Add a row to the history, keep the best, and end the fit where it has to end."""
        self.steps, q, step = max(answer.step, self.steps), answer.q, answer.step
        first = self.start is None
        self.answers = self.answers.add(answer, own=self._is_own(q))
        seen = self.shown_terms(answer)
        row = {
            "step": step,
            "seconds": self.clock.spent(OPTIMISE),
            "wall": self.clock.total,
            "compile": self.clock.spent(COMPILE),
            "elbo": seen.elbo,
            "elbo_error": seen.error,
        }
        with self.clock.phase(EVALUATE):
            more = None
            if self.callback is not None and not self.checkpoint.replaying:
                more = self.callback(Moment(q, step, row["seconds"], answer.estimator_state))
        row = {**row, **(more or {})}
        self.history.add(row)
        self._show(lambda: self.progress.sight(answer, row, self.estimator, self.left()))
        if not first and self.start is not None:
            self.factor = check_divergence(self.probe, answer, self.start, self.factor)
        self.check()
        return row

    def shown_terms(self, answer: Candidate) -> ElboTerms:
        """What the history shows of an answer: its terms, or those at draws that all methods share."""
        if self.evaluators.shown is None:
            return answer.terms
        with self.clock.phase(EVALUATE):
            return self.evaluators.shown.terms(answer.q)

    def record_better(self, found: Candidate, incumbent: Candidate | None, step: int) -> Row:
        """Record the better of two candidates: the history shows what would be returned now."""
        better = found
        if incumbent is not None and paired_difference(incumbent.terms, found.terms).nats > 0:
            better = incumbent
        return self.record(better._replace(step=step))

    def advance(self, step: int) -> None:
        """Steps were taken that nobody evaluated; end the fit where it has to end."""
        self.steps = max(step, self.steps)
        self.check()

    def note(self, kind: str, *, estimator: AbstractEstimator | None = None, **numbers: Any) -> None:
        """Write a decision into the journal."""
        estimator = self.estimator if estimator is None else estimator
        name = "" if estimator is None else estimator.title
        self.decisions.append(Decision(self.steps, kind, name, numbers))

    # Limits

    def check(self) -> None:
        """Raise `Ended` if the user or a limit wants the fit to end.

        No limit ends a fit on the way to where it already was.
        """
        self.limits.check(timed=not self.checkpoint.replaying)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Turn Ctrl-C into an ending with the best answer; a second one raises KeyboardInterrupt."""
        with (
            self.clock.running(),
            progress_line(show=self._shown) as self._show,
            self.limits.interrupts.catching(),
        ):
            yield

    # Checkpoints

    def stage(self, name: str, run: Callable[[], T]) -> T:
        """The outcome of a stage: what the checkpoint has of it, or else what `run` returns."""
        slot = self.slot(name)
        if slot.stored is not None:
            return slot.stored[0]
        outcome = run()
        slot.store((outcome,))
        return outcome

    def slot(self, name: str) -> Slot:
        """A place to return to after an interruption, for loops that store their state there.

        A method comes to the same slots in the same order each time, and random numbers in between
        depend on names only.
        """
        return self.checkpoint.slot(name, Stored(self))

    def close(self, result: Mapping[str, Any] | None) -> None:
        """Write the checkpoint of a fit that has ended, with its result if it was not interrupted."""
        self.checkpoint.write(Stored(self), result)

    def catch_up(self) -> None:
        """If the fit ended on the way to where it already was, be there."""
        self.checkpoint.catch_up(Stored(self))

    # Endings

    @property
    def points(self) -> Points:
        """The target's values, gradients and curvature on the host, as the method asked for them."""
        assert self._points is not None, "a method that needs points says so by use_points"
        return self._points

    def use_points(self, points: Points) -> None:
        """Evaluate the log density by this program, here too."""
        self._points = points
        self.probe = self.probe._replace(values=lambda z: points(z)[0], density=points)

    def held_to_start(self, status: Status, hint: str) -> tuple[Status, str]:
        """What a method may claim. Where its answer is below a start that was given, return to that."""
        start, answer = self.start, self.answer
        if not self.problem.start_given or start is None or answer is start:
            return status, hint
        floor = compare(start, answer, self.final_terms)
        if not floor.start_is_better:
            return status, hint
        self.choose(start)
        self.answers = self.answers._replace(prefer_last=False)
        if status is Status.CONVERGED and floor.clearly:
            return Status.STALLED, floor.in_words()
        # The answer has converged, and the start is as good.
        self.confirm_start()
        return status, hint

    def verified_status(self, status: Status, hint: str, final: ElboTerms) -> tuple[Status, str]:
        """The ending as it is: what a method claims, checked against its answer at fresh draws."""
        best, answer = self.best, self.answer
        instead = self._inside is not None and answer is self._inside[1]
        own = self.answers.own if instead else None
        known = Evidence(
            self.start, best, answer, self.draws_of, self.probe, self._stationary_start, own
        )
        return verify_status(self.problem, status, hint, final, known)

    def final_terms(self, q: AbstractFamily) -> ElboTerms:
        """q at draws that nothing was chosen by."""
        with self.clock.phase(EVALUATE):
            return self.evaluators.final_terms(q, saw_bad=self.answers.saw_bad)

    def evaluation_words(self) -> str:
        """With how many draws and how often the ELBO was judged, in a sentence."""
        return self.evaluators.in_words(len(self.history))

    def _is_own(self, q: AbstractFamily) -> bool:
        """Whether q is of the family that was asked for."""
        return self.problem.any_family or type(q) is type(self.problem.q)

    def _own_best(self) -> Candidate:
        """The best answer of the family that was asked for."""
        best, q, own = self.best, self.problem.q, self.answers.own
        if self._is_own(best.q):
            return own or best
        if own is not None and not q.contains(best.q):
            return own
        if self._inside is None or self._inside[0] is not best:
            held = q.contains(best.q)
            inside = q.start_from(best.q, key=key_of(self.seed("inside"))) if held else q
            with self.clock.phase(EVALUATE):
                self._inside = best, Candidate(inside, best.step, self.terms(inside))
        inside = self._inside[1]
        return inside if own is None or paired_difference(inside.terms, own.terms).nats > 0 else own

    def draws_of(self, q: AbstractFamily) -> np.ndarray:
        """A few draws of q, to look at the target with when something is wrong."""
        return np.asarray(q.sample(key_of(self.seed("points")), 8), float)
