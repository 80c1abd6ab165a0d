"""The contract of a solver: a way to better members of a family, taken one step at a time.

A solver is a value: its fields are all of its numbers, and what changes is a state that it hands back.
It takes some iterations and proposes members; it does not evaluate them, keep the best, watch the clock
or decide when to stop. That is the driver's part (`driver.py`), which is the same for every solver.
"""

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx

from ..evaluation.elbo_terms import Difference
from ..families import AbstractFamily
from ..session import Candidate, Recorder


class Step(NamedTuple):
    """What a step hands to the driver.

    `members` are proposed for evaluation, of which the best counts; there may be none yet. `state` is
    what the next step starts from, a pytree that a checkpoint can store. `iterations` counts those of
    the solver so far. `estimator_state` belongs to the members. With an `end` the solver has nothing
    more to try: "stationary", or a word that whoever runs it knows.
    """

    members: tuple[AbstractFamily, ...]
    state: Any
    iterations: int
    estimator_state: Any = None
    end: str | None = None


class Feedback(NamedTuple):
    """How the last step did: the best member of all, this step's best, and by how much it changed.

    `change` is `found` against the best before it. `candidates` are all members of the step, evaluated.
    """

    best: Candidate
    found: Candidate
    change: Difference
    candidates: tuple[Candidate, ...]


class AbstractSolver(eqx.Module):
    """Frozen: one solver can be stepped on any number of problems at once."""

    # What the progress line calls it.
    title: ClassVar[str] = ""
    # Whether evaluations are charged apart from the optimisation and kept to their share of its time.
    paced: ClassVar[bool] = False

    @abc.abstractmethod
    def init(self, session: Recorder, start: Candidate) -> Any:
        """The state before the first step, at a start."""

    @abc.abstractmethod
    def step(self, session: Recorder, state: Any, feedback: Feedback | None) -> Step:
        """Some iterations. `feedback` is the driver's on the last members, None before there were any.

        A step may take a while: it calls `session.check()` often enough for Ctrl-C and limits.
        """
