"""What is to be fitted, what a candidate for its answer is, and which draws evaluate candidates."""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Int, PyTree, UInt32

from ..evaluation.elbo_terms import PAIRS, ElboEvaluator, ElboTerms, affordable_pairs
from ..families import AbstractFamily, MeanField
from ..targets import Target
from .streaming import Feed, StreamedElboEvaluator

J = TypeVar("J", bound=Any)
# On the way, a pair of draws meets at most this many rows: all of them where there are no more, and rows
# of its own otherwise. Of rows on disk, `READ_ROWS` are read once.
JUDGED_ROWS, READ_ROWS = 2**14, 2**17
# Pairs of an evaluation on all rows where there are very many; multiples of it where they do not do.
PRECISE_PAIRS = 16
# Times as many draws at the end where some were not finite on the way.
CAREFUL = 16


class Problem(eqx.Module):
    """What is to be fitted: a target, the family at its start, and the rows of a step.

    With `any_family`, q is only where the method begins: it may answer with a member of any family.
    With `start_given`, q is a member that the user handed in, not one made from a name: the fit goes on
    from it and does not end below it.
    `first` is the mean-field start that goes with q; by default it is q itself, or a random one. Where
    rows are on disk, `target` holds a pool of them and `feed` has the others; where they are spread over
    devices, `given` is the target before that.
    """

    target: Target
    q: AbstractFamily
    batch_size: int | None = eqx.field(static=True, default=None)
    any_family: bool = eqx.field(static=True, default=False)
    first: MeanField | None = None
    feed: Feed | None = eqx.field(static=True, default=None)
    given: Target | None = None
    start_given: bool = eqx.field(static=True, default=False)

    @property
    def whole(self) -> Target:
        """The target with all its rows."""
        return self.target if self.feed is None else self.feed.whole

    @property
    def own(self) -> Target:
        """The target as the user gave it."""
        return self.whole if self.given is None else self.given

    def on_some_rows(self, count: int, rng: np.random.Generator) -> Target:
        """The target on at most `count` of the rows, drawn at random."""
        some = self.own.on_rows(self.own.sample_rows(count, rng))
        return some.with_mesh(self.target.mesh)

    def pieces(self, job: J, first: int, last: int) -> Iterator[tuple[J, int, int]]:
        """Steps first, ..., last - 1 in pieces, each with a job whose target has the rows for them."""
        if self.feed is None:
            yield job, first, last
            return
        for target, begin, end in self.feed.pieces(first, last):
            yield eqx.tree_at(lambda j: j.target, job, target), begin, end


class Evaluation(NamedTuple):
    """How the ELBO is evaluated: draws on the way and at the end, and the share of the time it may take.

    Fewer draws, and on the way fewer rows, are taken where rows or coordinates are many. `share=None`
    evaluates whenever a method asks, with as many draws and all rows, whatever it costs: studies want
    that. With `shown_draws`, the history's ELBOs are those at this many other draws, the same for every
    method: what a method evaluates to decide is its own affair, and on its own clock. `unnoticed`
    numbers (rows or coordinates, times draws) may always be touched by a comparison that needs more
    draws: a few tenths of a second.
    """

    draws: int = 128
    final_draws: int = 1024
    share: float | None = 0.2
    shown_draws: int | None = None
    unnoticed: int = 2**28


DEFAULT = Evaluation()


class Moment(NamedTuple):
    """What a callback gets to see at an evaluation."""

    q: AbstractFamily
    step: int
    seconds: float
    estimator_state: PyTree


Callback = Callable[[Moment], Mapping[str, float | int] | None]


class Candidate(NamedTuple):
    """A candidate for the result, with its terms at the judge's draws."""

    q: AbstractFamily
    step: int
    terms: ElboTerms
    estimator_state: PyTree = None


class Evaluators:
    """`on_the_way` compares candidates; `final` has evaluated none yet; `shown` is for the history."""

    def __init__(
        self,
        problem: Problem,
        evaluation: Evaluation,
        seed: Callable[[str], UInt32[Array, "2"]],
        rng: Callable[[str], np.random.Generator],
    ):
        self.problem, self.evaluation, self._seed = problem, evaluation, seed
        target, pairs = problem.whole, [max(2, n // 2) for n in evaluation[:2]]
        judged, rows = target, None
        if evaluation.share is not None or target.on_disk:
            pairs = [affordable_pairs(target.rows, problem.q.dim, count) for count in pairs]
            if target.on_disk or target.rows > JUDGED_ROWS:
                wanted = min(PAIRS, max(2, evaluation.draws // 2))
                pairs[0] = affordable_pairs(JUDGED_ROWS, problem.q.dim, wanted)
                judged = (
                    problem.on_some_rows(READ_ROWS, rng("judged rows")) if target.on_disk else target
                )
                rows = _shares(judged.rows, pairs[0], rng("shares of rows"))
        self.on_the_way = ElboEvaluator(judged, pairs=pairs[0], seed=seed("judge"), rows=rows)
        kind = StreamedElboEvaluator if target.on_disk else ElboEvaluator
        self.final = kind(target, pairs=pairs[1], seed=seed("final"))
        self.shown = None
        if evaluation.shown_draws is not None:
            shown = max(2, evaluation.shown_draws // 2)
            self.shown = kind(target, pairs=shown, seed=seed("shown"))

    @functools.cached_property
    def precise(self) -> ElboEvaluator | None:
        """An evaluator on all rows at draws of its own, for questions that `on_the_way` leaves open.

        It shares the other's program where that has all rows. None for rows that stay on disk.
        """
        target, usual = self.problem.whole, self.on_the_way
        if target.on_disk:
            return None
        pairs = usual.at_once if usual.rows is None else min(PRECISE_PAIRS, usual.at_once)
        return ElboEvaluator(target, pairs=pairs, seed=self._seed("precise"))

    def final_terms(self, q: AbstractFamily, *, saw_bad: bool) -> ElboTerms:
        """q at draws that nothing was chosen by."""
        # Where draws were not finite on the way, rare ones may be left that few draws miss.
        return self.final.terms(q, times=CAREFUL if saw_bad else 1)

    def in_words(self, times: int) -> str:
        """With how many draws and how often the ELBO was judged, in a sentence."""
        evaluator, share = self.on_the_way, self.evaluation.share
        draws = 2 * evaluator.pairs
        text = f"The ELBO was judged {times:,} times with the same {draws:,} draws"
        if share is None:
            return f"{text}."
        if draws < self.evaluation.draws - 1:
            text += f" (not {self.evaluation.draws:,}: rows or coordinates are many)"
        if evaluator.rows is not None:
            text += f", each pair of them on {evaluator.rows.shape[1]:,} rows of its own"
        final = 2 * self.final.pairs
        return (
            f"{text}, at the end with {final:,} others; this may take {share:.0%} of the optimisation."
        )


def _shares(rows: int, pairs: int, rng: np.random.Generator) -> Int[np.ndarray, "pairs rows"]:
    """Rows for each pair, drawn at random; no row twice."""
    each = max(1, min(JUDGED_ROWS, rows // pairs))
    if pairs * each > rows:
        return rng.integers(0, rows, (pairs, each))
    return rng.permutation(rows)[: pairs * each].reshape(pairs, each)
