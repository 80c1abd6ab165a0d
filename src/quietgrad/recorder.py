"""What every fit has in common: clock, history, the best answer so far, limits, interruption, ending.

A method tells the recorder what it has found and asks it when to stop; it keeps none of this itself.
"""

import contextlib
import functools
import math
import signal
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Key, PyTree, UInt32

from . import trouble
from ._host import on_device
from ._progress import Show, progress_line
from ._random import key_of, key_words
from .clock import EVALUATE, OPTIMISE, Clock
from .estimators import AbstractEstimator
from .families import AbstractFamily
from .judging import Judge, Terms, affordable_pairs, paired
from .metrics import BLOCK
from .results import History, Status
from .targets import Target


class Problem(eqx.Module):
    """What is to be fitted: a target, the family at its start, and the rows of a step.

    With `any_family`, q is only where the method begins: it may answer with a member of any family.
    """

    target: Target
    q: AbstractFamily
    batch_size: int | None = eqx.field(static=True, default=None)
    any_family: bool = eqx.field(static=True, default=False)


class Evaluation(NamedTuple):
    """How the ELBO is judged: with how many draws on the way and at the end, for what share of the time.

    Fewer draws, and on the way fewer rows, are taken where rows or coordinates are many. `share=None`
    evaluates whenever a method would like to, with as many draws and all rows, whatever it costs:
    studies want that. With `shown_draws`, the history's ELBOs are those at so many other draws, the same
    for every method: what a method looks at to decide is its own affair, and on its own clock.
    """

    draws: int = 128
    final_draws: int = 1024
    share: float | None = 0.2
    shown_draws: int | None = None


DEFAULT = Evaluation()


class Moment(NamedTuple):
    """What a callback gets to see at an evaluation."""

    q: AbstractFamily
    step: int
    seconds: float
    estimator_state: PyTree


class Answer(NamedTuple):
    """A candidate for the result, with its terms at the judge's draws."""

    q: AbstractFamily
    step: int
    terms: Terms
    estimator_state: PyTree = None


class Ended(Exception):
    """Raised by the recorder where a fit has to end before its method would end it."""

    def __init__(self, status: Status, hint: str):
        super().__init__(hint)
        self.status, self.hint = status, hint


Callback = Callable[[Moment], Mapping[str, float | int] | None]
INTERRUPTED = "stopped by the user; fit(target, result.q, ...) goes on from here"
# On the way, targets with more rows are judged on this many, the same for all answers.
JUDGED_ROWS = 2**14
# Times as many draws at the end where some were not finite on the way.
CAREFUL = 16
# Nats below a contained family's solution that a converged fit may be, apart from noise.
BELOW = 0.5
# With a standard error above this, an ELBO says nothing about convergence.
UNKNOWN = 10.0
# Evaluation that nobody notices: below this many seconds its share does not matter.
FREE_SECONDS = 0.5
NOTHING_BETTER = (
    "nothing that the method tried was better than its start; give it another start, more steps, or "
    "smaller ones"
)
OUT_OF_TIME = "the time limit was reached before the method was done; give more seconds"


@eqx.filter_jit
def _log_densities(target: Target, z: Float[Array, "points dim"]) -> Float[Array, " points"]:
    return jax.lax.map(target.log_density, z)


def _values(target: Target, dtype: Any, z: Float[np.ndarray, "points dim"]) -> np.ndarray:
    """The log density at points that the host chose, not too many numbers at once."""
    block = max(1, min(len(z), BLOCK // z.shape[1]))
    padded = np.concatenate([z, np.repeat(z[-1:], -len(z) % block, axis=0)])
    parts = [
        np.asarray(_log_densities(target, on_device(padded[first : first + block], dtype)), float)
        for first in range(0, len(z), block)
    ]
    return np.concatenate(parts)[: len(z)]


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
    ):
        self.problem, self.evaluation, self.callback = problem, evaluation, callback
        self.clock = Clock() if clock is None else clock
        self.history, self.decisions, self.steps = History(), [], 0
        self.estimator: AbstractEstimator | None = None
        self._limits = {"total": seconds, OPTIMISE: optimise_seconds}
        self._show: Show = lambda stage, row: None
        self._progress, self._interrupted, self._looks, self._last_look = progress, 0, 0, 0.0
        self._start: Answer | None = None
        self._best: Answer | None = None
        self._own: Answer | None = None
        self._last: Answer | None = None
        self._prefer_last = self._saw_bad = False
        self._factor = trouble.SUSPICIOUS
        # What evaluates the log density when something looks wrong; methods that have a program for it
        # put it here.
        self.values: trouble.Values = functools.partial(_values, problem.target, problem.q.dtype)
        self._key = key_words(key)
        target, pairs = problem.target, [max(2, n // 2) for n in evaluation[:2]]
        judged = target
        if evaluation.share is not None:
            pairs = [affordable_pairs(target, problem.q.dim, count) for count in pairs]
            if target.rows > JUDGED_ROWS:
                rows = self.rng("judged rows").permutation(target.rows)[:JUDGED_ROWS]
                judged = target.on_rows(np.sort(rows))
                pairs[0] = affordable_pairs(judged, problem.q.dim, max(2, evaluation.draws // 2))
        self.judge = Judge(judged, pairs=pairs[0], seed=self.words("judge"))
        self._final = Judge(target, pairs=pairs[1], seed=self.words("final"))
        self._shown_by = None
        if evaluation.shown_draws is not None:
            shown = max(2, evaluation.shown_draws // 2)
            self._shown_by = Judge(target, pairs=shown, seed=self.words("shown"))

    def words(self, stream: str) -> UInt32[Array, "2"]:
        """The two words of the key of a stream of random numbers, told apart by its name.

        Worked out on the host: splitting a key eagerly would compile programs.
        """
        return on_device(self.rng(stream).integers(0, 2**32, 2, np.uint32))

    def rng(self, stream: str) -> np.random.Generator:
        """The host's random numbers of a stream."""
        return np.random.default_rng([*self._key, zlib.crc32(stream.encode())])

    # Answers

    @property
    def best(self) -> Answer:
        """The best answer so far; the start, before anything was told."""
        if self._best is None:
            return Answer(self.problem.q, 0, self._terms_of_start())
        return self._best

    @property
    def answer(self) -> Answer:
        """What the fit returns: the family's best answer, or the last one if that is preferred.

        A fit that ended while it was still in a simpler family returns that solution as a member of the
        family that was asked for, if it can hold it.
        """
        best, last = self._own_best(), self._last
        if last is None or last is best or not self._prefer_last:
            return best
        gain, error = paired(last.terms, best.terms)
        return last if gain > -2 * error else best

    def choose(self, answer: Answer) -> Answer:
        """Go back to an earlier answer: what was told since is not the better one beyond doubt."""
        self._best = self._own = answer
        return answer

    def prefer_last(self) -> None:
        """Return the last answer unless an earlier one is clearly better: for methods without tests."""
        self._prefer_last = True

    @property
    def start(self) -> Answer | None:
        """The first answer that was told."""
        return self._start

    def terms(self, q: AbstractFamily) -> Terms:
        """q at the judge's draws, charged to whatever phase this is."""
        return self.judge.terms(q)

    def may_look(self) -> bool:
        """Whether an evaluation like the last one would keep within its share of the time."""
        if self.evaluation.share is None or self._looks == 0:
            return True
        after = self.clock.spent(EVALUATE) + self._last_look
        return after <= max(FREE_SECONDS, self.evaluation.share * self.clock.spent(OPTIMISE))

    def look(self, q: AbstractFamily, step: int, *, state: PyTree = None) -> Answer:
        """Evaluate q, write it down, and keep it if it is the best so far."""
        with self.clock.phase(EVALUATE):
            began = self.clock.spent(EVALUATE)
            terms = self.terms(q)
            self._last_look, self._looks = self.clock.spent(EVALUATE) - began, self._looks + 1
        return self.tell(q, step, terms, state=state)

    def tell(self, q: AbstractFamily, step: int, terms: Terms, *, state: PyTree = None) -> Answer:
        """Write down an evaluation that was made anyway; end the fit where it has to end."""
        answer, self.steps = Answer(q, step, terms, state), max(step, self.steps)
        first = self._start is None
        if first:
            self._start = answer
        if self._best is None or paired(terms, self._best.terms)[0] > 0:
            self._best = answer
        own = self.problem.any_family or type(q) is type(self.problem.q)
        if own and (self._own is None or paired(terms, self._own.terms)[0] > 0):
            self._own = answer
        self._last, self._saw_bad = answer, self._saw_bad or terms.bad > 0
        seen = self.shown_terms(answer)
        row = {
            "step": step,
            "seconds": self.clock.spent(OPTIMISE),
            "wall": self.clock.total,
            "elbo": seen.elbo,
            "elbo_error": seen.error,
        }
        with self.clock.phase(EVALUATE):
            more = None
            if self.callback is not None:
                more = self.callback(Moment(q, step, row["seconds"], state))
        self.history.add({**row, **(more or {})})
        self._shown(row)
        if not first:
            self._watch(answer)
        self.check()
        return answer

    def shown_terms(self, answer: Answer) -> Terms:
        """What the history shows of an answer: its terms, or those at draws that all methods share."""
        if self._shown_by is None:
            return answer.terms
        with self.clock.phase(EVALUATE):
            return self._shown_by.terms(answer.q)

    def tell_better(self, found: Answer, rival: Answer | None, step: int) -> Answer:
        """Tell of the better of two answers: the history shows what would be returned now."""
        better = found
        if rival is not None and paired(rival.terms, found.terms)[0] > 0:
            better = rival
        return self.tell(better.q, step, better.terms)

    def passed(self, step: int) -> None:
        """Steps were taken that nobody evaluated; end the fit where it has to end."""
        self.steps = max(step, self.steps)
        self.check()

    # Limits

    def interrupt(self) -> None:
        """Ask the fit to end where it next looks."""
        self._interrupted += 1

    def check(self) -> None:
        """Raise `Ended` if the user or a limit wants the fit to end."""
        if self._interrupted:
            raise Ended(Status.INTERRUPTED, INTERRUPTED)
        if self.left() <= 0:
            raise Ended(Status.BUDGET, OUT_OF_TIME)

    def left(self) -> float:
        """Seconds left until a limit; infinite without one."""
        spent = {"total": self.clock.total, OPTIMISE: self.clock.spent(OPTIMISE)}
        return min(
            (limit - spent[name] for name, limit in self._limits.items() if limit is not None),
            default=math.inf,
        )

    # Endings

    def true_ending(self, status: Status, hint: str, final: Terms) -> tuple[Status, str]:
        """The ending as it is: what a method claims, checked against its answer at fresh draws."""
        answer, start = self.answer, self._start
        draws = 2 * final.values.size
        if final.bad == draws and not status.failed:
            return trouble.nowhere_finite(self.problem.target, self.points(answer.q))
        if final.bad and not status.failed:
            return trouble.partly_finite(final.bad / draws)
        if start is None or not math.isfinite(final.elbo):
            return status, hint
        if status is Status.CONVERGED and answer is start:
            return Status.STALLED, NOTHING_BETTER
        if status is Status.CONVERGED and not final.error < UNKNOWN:
            return Status.STALLED, (
                f"the ELBO is only known to ± {final.error:.2g} nats, so that nothing can be said of "
                "convergence: some draws of q are where the density all but vanishes; try a narrower "
                "start, or another parametrisation"
            )
        behind, error = paired(self.best.terms, answer.terms)
        if status is Status.CONVERGED and behind > 2 * error + BELOW and self._contains_best():
            return Status.STALLED, (
                f"the fit ended {behind:.2f} ± {error:.2f} nats below the {type(self.best.q).__name__} "
                "solution found on the way, which the family contains; give it more steps"
            )
        if status in (Status.BUDGET, Status.STALLED, Status.CONVERGED):
            mean, std = answer.terms.mean, answer.terms.std
            moved = trouble.movement(mean, std, start.terms.mean, start.terms.std)
            worst = [int(i) for i in np.argsort(-moved)[: trouble.LOOKED_AT]]
            found = trouble.runaway(self.problem.target, self.values, mean, std, worst)
            return found or (status, hint)
        return status, hint

    def final_terms(self, q: AbstractFamily) -> Terms:
        """q at draws that have judged nothing before."""
        with self.clock.phase(EVALUATE):
            if self._saw_bad:
                # Where draws were not finite on the way, rare ones may be left that few draws miss.
                self._final.blocks *= CAREFUL
            return self._final.terms(q)

    def evaluation_words(self) -> str:
        """With how many draws and how often the ELBO was judged, in a sentence."""
        draws, share, rows = 2 * self.judge.pairs, self.evaluation.share, self.judge.target.rows
        text = f"The ELBO was judged {len(self.history):,} times with the same {draws:,} draws"
        if share is None:
            return f"{text}."
        if draws < self.evaluation.draws - 1:
            text += f" (not {self.evaluation.draws:,}: rows or coordinates are many)"
        if rows < self.problem.target.rows:
            text += f" on the same {rows:,} rows"
        final = 2 * self._final.pairs
        return (
            f"{text}, at the end with {final:,} others; this may take {share:.0%} of the optimisation."
        )

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Turn Ctrl-C into an ending with the best answer; a second one raises KeyboardInterrupt."""
        with self.clock.running(), progress_line(show=self._progress) as self._show:
            if threading.current_thread() is not threading.main_thread():
                yield
                return

            def handle(number: int, frame: Any) -> None:
                self.interrupt()
                if self._interrupted > 1:
                    raise KeyboardInterrupt

            before = signal.signal(signal.SIGINT, handle)
            try:
                yield
            finally:
                signal.signal(signal.SIGINT, before)

    def _own_best(self) -> Answer:
        """The best answer of the family that was asked for."""
        best, q = self.best, self.problem.q
        if self._own is not None or self.problem.any_family or type(best.q) is type(q):
            return self._own or best
        inside = q.start_from(best.q, key=key_of(self.words("inside"))) if q.contains(best.q) else q
        with self.clock.phase(EVALUATE):
            self._own = Answer(inside, best.step, self.terms(inside))
        return self._own

    def _contains_best(self) -> bool:
        return self.problem.q.contains(self.best.q)

    def _terms_of_start(self) -> Terms:
        with self.clock.phase(EVALUATE):
            return self.terms(self.problem.q)

    def points(self, q: AbstractFamily) -> np.ndarray:
        """A few draws of q, to look at the target with when something is wrong."""
        return np.asarray(q.sample(key_of(self.words("points")), 8), float)

    def _shown(self, row: Mapping[str, float | int]) -> None:
        stage = str(self.decisions[-1].kind) if self.decisions else ""
        self._show(stage, row)

    def _watch(self, answer: Answer) -> None:
        """End a fit whose location or scales run away, as soon as that is plain."""
        assert self._start is not None
        terms, start = answer.terms, self._start.terms
        if not (np.all(np.isfinite(start.mean)) and np.all(np.isfinite(start.std))):
            return
        suspects = trouble.suspicious(terms.mean, terms.std, start.mean, start.std, self._factor)
        if not suspects:
            return
        found = trouble.runaway(self.problem.target, self.values, terms.mean, terms.std, suspects)
        if found is not None:
            raise Ended(*found)
        self._factor *= trouble.SUSPICIOUS
