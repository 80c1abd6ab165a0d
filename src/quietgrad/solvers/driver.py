"""The one loop of a fit: it steps a solver, evaluates what it proposes, keeps the best, and stops.

Everything that solvers have in common is here: the clock, limits and Ctrl-C, the ELBO at the evaluator's
draws, the best so far, rows of the history, the check that the fit does not diverge, and the checkpoint,
which holds the state of the running solver and the outcomes of those before it.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx

from ..evaluation.elbo_terms import STANDARD_ERRORS, Difference, paired_difference
from ..session import Candidate, Recorder
from ..session.clock import EVALUATE, OPTIMISE
from ..session.history import Plateau, Reached
from .solver import AbstractSolver, Feedback, Step

# How a run of a solver can end, apart from words of its own: no step gains enough any more, the
# iterations are used up, or its rule is reached.
STATIONARY, EXHAUSTED, REACHED = "stationary", "exhausted", "reached"


class Stop(eqx.Module):
    """When to stop stepping a solver, and what to keep.

    A step counts as progress if it clearly gains `gain` nats over the best so far; `patience` steps in a
    row without progress end the run as stationary, from iteration `least` on. With `conclusive`, only a
    step that clearly gains less than `gain` counts against it: where the draws cannot tell, the run goes
    on. `iterations` bound the run. As long as an `incumbent` is better than the run, the history shows
    that one. `keep` is "better", for the candidate with the highest ELBO, or "last", for the last one
    unless an earlier one is clearly better: where steps average more draws than the evaluator has, or
    rows differ between its draws.
    With `sharp`, a change that leaves open whether it is worth `gain` is evaluated at more draws and all
    rows, and after `flat` steps in a row whose change is not clear of zero even so, the run is
    stationary: each was as long as all before it together. They count only where a gain of `seen` times
    `gain` is at least three standard errors: one of two such steps would have shown it with a chance of
    97 %. With `falling`, what counts is not the gain
    of a step but that of the next one, which is taken to fall by the same ratio again, though not below
    `least_ratio` of it: averages over T stochastic steps are about 1/T from the optimum (Polyak &
    Juditsky 1992), so that a round twice as long gains half. After a step that gained more than 1 /
    `from_afar` times as much, and so came from afar, nothing is known of that. A `rule` reads a
    column of the history's rows; with `obey` it ends the run where it is reached.
    """

    gain: float = 0.5
    patience: int = 2
    iterations: int = 500
    least: int = 0
    conclusive: bool = False
    keep: str = "better"
    incumbent: Candidate | None = None
    sharp: bool = False
    flat: int = 2
    seen: float = 2.0
    falling: bool = False
    least_ratio: float = 0.5
    from_afar: float = 0.1
    rule: Plateau | Reached | None = None
    obey: bool = False

    def progressed(self, change: Difference, before: Difference | None = None) -> bool:
        """Whether a step's change speaks for going on; `before` is that of the step before."""
        if self.conclusive:
            # A clear loss is taken back by the solver, and is no sign that nothing is left to gain.
            return change.clearly_below() or not self.next_gain(change, before) < self.gain
        # Far from the answer the draws may not tell how much was gained, only that something was.
        unclear = change.error > self.gain and change.nats > self.gain
        return change.clearly_above(self.gain) or unclear

    def shows_nothing(self, change: Difference) -> bool:
        """Whether a change cannot be distinguished from zero, though one that matters would be."""
        unclear = not change.clearly_above() and not change.clearly_below()
        return unclear and 3 * change.error <= self.seen * self.gain

    def next_gain(self, change: Difference, before: Difference | None) -> float:
        """What the next step may gain, at most: as much as this one or, where gains fall, less."""
        most = change.non_negative.nats + STANDARD_ERRORS * change.error
        least = 0.0 if before is None else before.nats - STANDARD_ERRORS * before.error
        if not self.falling or most <= self.from_afar * least or least <= 0:
            return most
        return most * min(1.0, max(self.least_ratio, most / least))

    def kept(self, best: Candidate, found: Candidate, change: Difference) -> Candidate:
        """Which of the two stays."""
        if self.keep == "last":
            return best if change.clearly_below() else found
        # Where the draws cannot tell a gain from a loss, the later of two is the better guess.
        unclear = change.error > self.gain and not change.clearly_below()
        return found if change.nats > 0 or unclear else best


class Run(NamedTuple):
    """A solver under way: its state, the best candidate with the state that proposed it, and the end.

    `ahead` are the nats that a further step may gain, at most.
    """

    state: Any
    best: Candidate
    best_state: Any
    feedback: Feedback | None = None
    waited: int = 0
    flat: int = 0
    ahead: float = math.inf
    iterations: int = 0
    values: tuple[float, ...] = ()
    end: str | None = None

    @property
    def stationary(self) -> bool:
        """Whether it ended because no step gains enough any more."""
        return self.end == STATIONARY


def drive(
    solver: AbstractSolver,
    start: Candidate,
    session: Recorder,
    stop: Stop,
    *,
    name: str,
    state: Any = None,
) -> Run:
    """Step a solver from a start until it stops. `name` is that of the slot in the checkpoint.

    `state` continues an earlier run of the solver instead of `solver.init`.
    """
    session.progress.stage = solver.title
    slot = session.slot(name)
    run = slot.stored
    if run is None:
        with session.clock.phase(OPTIMISE):
            state = solver.init(session, start) if state is None else state
        run = Run(state, start, state)
    while run.end is None:
        session.check()
        with session.clock.phase(OPTIMISE):
            step = solver.step(session, run.state, run.feedback)
        number, phase = start.step + step.iterations, EVALUATE if solver.paced else OPTIMISE
        with session.clock.phase(phase):
            candidates = tuple(session.candidate(q, number, step.estimator_state) for q in step.members)
        with session.clock.phase(phase):
            run = _advanced(run, step, candidates, stop, session)
        if candidates:
            assert run.feedback is not None
            shown = run.feedback.found if solver.paced else run.best
            run = _read(run, session.record_better(shown, stop.incumbent, number), stop)
        else:
            session.advance(number)
        slot.store(run)
    return run._replace(best=run.best._replace(step=start.step + run.iterations))


def _read(run: Run, row: Mapping[str, float | int], stop: Stop) -> Run:
    """The run after a row of the history, which a rule may end it by."""
    if stop.rule is None:
        return run
    values = (*run.values, float(row.get(stop.rule.column, math.nan)))
    done = run.end is None and stop.obey and stop.rule.reached(values)
    return run._replace(values=values, end=REACHED if done else run.end)


def _advanced(
    run: Run, step: Step, candidates: tuple[Candidate, ...], stop: Stop, session: Recorder
) -> Run:
    """The run after a step, whose members have been evaluated."""
    taken = step.iterations - run.iterations
    run = run._replace(state=step.state, iterations=step.iterations, end=step.end)
    if candidates:
        found = candidates[0]
        for other in candidates[1:]:
            found = other if paired_difference(other.terms, found.terms).nats > 0 else found
        change = paired_difference(found.terms, run.best.terms)
        if stop.sharp and step.iterations >= stop.least and not change.conclusive(stop.gain):
            change = session.sharper(found, run.best, change, stop.gain, taken)
        before = None if run.feedback is None else run.feedback.change
        none = stop.shows_nothing(change)
        best = stop.kept(run.best, found, change)
        run = run._replace(
            best=best,
            best_state=step.state if best is found else run.best_state,
            feedback=Feedback(best, found, change, candidates),
            waited=0 if stop.progressed(change, before) else run.waited + 1,
            flat=run.flat + 1 if none else 0,
            ahead=stop.next_gain(change, before),
        )
    still = stop.sharp and run.flat >= stop.flat
    if run.end is None and (run.waited >= stop.patience or still) and step.iterations >= stop.least:
        run = run._replace(end=STATIONARY)
    if run.end is None and step.iterations >= stop.iterations:
        run = run._replace(end=EXHAUSTED)
    return run
