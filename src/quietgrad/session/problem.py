"""What is to be fitted, how it is judged, and what an answer to it is."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from ..evaluation.elbo_terms import ElboTerms
from ..families import AbstractFamily, MeanField
from ..targets import Target
from .streaming import Feed

J = TypeVar("J", bound=Any)


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


Callback = Callable[[Moment], Mapping[str, float | int] | None]


class Candidate(NamedTuple):
    """A candidate for the result, with its terms at the judge's draws."""

    q: AbstractFamily
    step: int
    terms: ElboTerms
    estimator_state: PyTree = None
