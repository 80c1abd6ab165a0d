"""Fits from several starts: the best answer, and how far the others agree with it.

A method that can scout tells where all starts lead for far less than a fit each. Starts that lead to the
same place are finished once, and those that are clearly behind not at all. Other methods fit in turns.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Key

from .._util.compiling import program
from .._util.device import on_device
from .._util.random import key_of, key_words
from ..diagnostics.agreement import BEHIND, NOT_RUN, SAME, Agreement, Start
from ..diagnostics.diagnosis import Restart
from ..evaluation.elbo_terms import ElboTerms, paired_difference
from ..families import MeanField
from ..methods import AbstractMethod
from ..methods.method import Piloted
from ..results import FitResult
from ..scale.sharding import shares_starts
from ..session import Ended, Problem, Recorder
from ..session.clock import EVALUATE
from ..status import Status

# Starts whose means are this close, in sds, and whose ELBOs are, in nats, lead to the same answer.
SAME_SDS, SAME_NATS = 0.5, 1.0
# Nats below the best of all at which a start is not finished: more than finishing gains, as a rule.
FAR_BEHIND = 10.0


class Finished(NamedTuple):
    """A fit, and its answer at the draws that all of them are compared at."""

    result: FitResult
    terms: ElboTerms


# A recorder for the start of this number; that of none in particular compares them.
Record = Callable[[Problem, int | None], Recorder]
Run = Callable[[Problem, AbstractMethod, Recorder], FitResult]


def other_starts(problem: Problem, count: int, key: Key[Array, ""]) -> list[Problem]:
    """The problem from `count` starts; its own is the first.

    A family given by name starts again from its `init`; an instance from random mean-field members.
    """
    q, numbers = problem.q, range(1, count)
    if not problem.start_given:
        made = program(type(q).init)
        starts = [made(q.dim, key=numbered(key, number)) for number in numbers]
    else:
        rngs = [np.random.default_rng(key_words(numbered(key, number))) for number in numbers]
        numbers_of = [0.5 * rng.standard_normal((2, q.dim)) for rng in rngs]
        members = [MeanField.of(loc, log_std, q) for loc, log_std in numbers_of]
        if not q.contains(members[0]):
            raise ValueError(
                f"restarts={count} needs other starts like the {type(q).__name__} that was given, which "
                "cannot start from a mean-field member; name the family, or fit from starts of your own "
                "and hand the results to diagnose(restarts=...)"
            )
        starts = [
            program(q.start_from)(member, key=numbered(key, number))
            for number, member in zip(numbers, members, strict=True)
        ]
    return [problem, *(dataclasses.replace(problem, q=q, start_given=False) for q in starts)]


def numbered(key: Key[Array, ""], number: int | None) -> Key[Array, ""]:
    """The key of the start of this number, worked out on the host: folding it would compile."""
    stream = 2**32 - 1 if number is None else number
    return key_of(
        on_device(np.random.default_rng([*key_words(key), stream]).integers(0, 2**32, 2, np.uint32))
    )


def fit_restarts(
    problems: Sequence[Problem], method: AbstractMethod, record: Record, run: Run
) -> FitResult:
    """The best of the fits of problems that differ in their starts, with their agreement."""
    common = record(problems[0], None)
    try:
        with common.watching():
            scouted = method.pilot(problems, common)
    except Ended:
        # Interrupted or out of time already: this ends at once, with the first start as its answer.
        return run(problems[0], method, common)
    if scouted is None and shares_starts(problems[0].target):
        raise ValueError(
            f"{type(method).__name__} fits {type(problems[0].q).__name__} from each start in turn, and "
            "leaves the axis 'restarts' of the mesh nothing to share out; name it 'draws'"
        )
    order, leader = _plan(scouted, len(problems))
    if problems[0].start_given and 0 not in order:
        # Scouts look at means and scales only. What the user gave may be better than where these lead.
        order, leader[0] = [0, *order], 0
    finished: dict[int, Finished] = {}
    for number in order:
        problem, recorder = problems[number], record(problems[number], number)
        if scouted is not None:
            problem = dataclasses.replace(problem, first=scouted[number].first)
        result = run(problem, method, recorder)
        with common.clock.running(), common.clock.phase(EVALUATE):
            finished[number] = Finished(result, common.terms(result.q))
        if result.status is Status.INTERRUPTED or common.left() <= 0:
            break
    best = max(finished, key=lambda n: _height(finished[n].terms))
    ended = [done.result for done in finished.values() if done.result.status is Status.INTERRUPTED]
    answer = finished[best].result
    return dataclasses.replace(
        answer,
        status=ended[0].status if ended else answer.status,
        hint=ended[0].hint if ended else answer.hint,
        clock=common.clock.read(),
        programs=common.clock.programs,
        restarts=_agreement(finished, best, leader, scouted),
    )


def _plan(scouted: Sequence[Piloted] | None, count: int) -> tuple[list[int], list[int]]:
    """The starts to finish, the most promising first, and for each start the one that it goes with."""
    leader = list(range(count))
    if scouted is None:
        return list(range(count)), leader
    terms = [None if each.answer is None else each.answer.terms for each in scouted]
    by_height = sorted(range(count), key=lambda n: -_height(terms[n]))
    leaders: list[int] = []
    for number in by_height:
        there = terms[number]
        others = [n for n in leaders if there is not None and _agree(there, terms[n])]
        leader[number] = others[0] if others else number
        leaders += [] if others else [number]
    top = terms[by_height[0]]
    return [n for n in leaders if n == by_height[0] or not _behind(terms[n], top)], leader


def _agreement(
    finished: Mapping[int, Finished], best: int, leader: list[int], scouted: Sequence[Piloted] | None
) -> Agreement:
    starts, others, answers = [], [], _answers(finished, best)
    for number, led in enumerate(leader):
        # Nothing was scouted where a start was neither finished nor goes with one that was.
        rough = None if scouted is None else scouted[number].answer
        if led in finished:
            done, (result, terms) = answers[led], finished[led]
            distance = _distance(terms, finished[best].terms)
            if number != led and scouted is not None and rough is not None:
                ahead = scouted[led].answer
                assert ahead is not None
                distance = max(distance, _distance(rough.terms, ahead.terms))
            status = str(result.status) if number == led else SAME
            starts.append(Start(result.elbo, result.elbo_error, distance, status, done))
        elif rough is not None:
            terms = rough.terms
            distance = _distance(terms, finished[best].terms)
            starts.append(Start(terms.elbo, terms.error, distance, BEHIND, led))
        else:
            starts.append(Start(math.nan, math.nan, math.nan, NOT_RUN, led))
            continue
        if number != best:
            others.append(Restart(terms.mean, terms.std, starts[-1].elbo, starts[-1].error))
    return Agreement(tuple(starts), best, tuple(others))


def _answers(finished: Mapping[int, Finished], best: int) -> dict[int, int]:
    """For each fit the first one, the best before all, that ended with the same answer."""
    answers: dict[int, int] = {}
    for number in [best, *(n for n in finished if n != best)]:
        terms = finished[number].terms
        same = [n for n in dict.fromkeys(answers.values()) if _agree(terms, finished[n].terms)]
        answers[number] = same[0] if same else number
    return answers


def _agree(a: ElboTerms, b: ElboTerms | None) -> bool:
    if b is None:
        return False
    apart = paired_difference(a, b)
    same = not (apart.clearly_above(SAME_NATS) or apart.clearly_below(-SAME_NATS))
    return same and _distance(a, b) < SAME_SDS


def _behind(a: ElboTerms | None, top: ElboTerms | None) -> bool:
    if a is None or top is None:
        return True
    return paired_difference(top, a).clearly_above(FAR_BEHIND)


def _distance(a: ElboTerms, b: ElboTerms) -> float:
    """How far the means are apart at most, in sds of the wider one."""
    with np.errstate(all="ignore"):
        return float(np.max(np.abs(a.mean - b.mean) / np.maximum(a.std, b.std)))


def _height(terms: ElboTerms | None) -> float:
    return -math.inf if terms is None or not math.isfinite(terms.elbo) else terms.elbo
