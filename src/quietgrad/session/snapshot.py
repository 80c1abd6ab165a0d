"""The checkpoint of a fit: what identifies it, and the session as a value, stored and put back."""

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
from jaxtyping import Array, Key

from ..estimators import AbstractEstimator
from .answers import Answers
from .checkpoints import Checkpoint, NullCheckpoint, identity, open_checkpoint
from .history import History
from .limits import Pace
from .problem import Problem

if TYPE_CHECKING:
    from .recorder import Recorder


class Snapshot(NamedTuple):
    """What a recorder knows. Of what only grows, rows and decisions, their number is enough."""

    rows: int
    decisions: int
    steps: int
    estimator: AbstractEstimator | None
    evaluations: int
    last_seconds: float
    factor: float
    answers: Answers


class Stored:
    """A recorder as its checkpoint sees it."""

    def __init__(self, recorder: "Recorder"):
        self._recorder = recorder

    def snapshot(self) -> Snapshot:
        """Its state now."""
        recorder, pace = self._recorder, self._recorder.pace
        return Snapshot(
            len(recorder.history),
            len(recorder.decisions),
            recorder.steps,
            recorder.estimator,
            pace.count,
            pace.last,
            recorder.factor,
            recorder.answers,
        )

    def restore(self, snapshot: Snapshot) -> None:
        """Make it what it was; the record has at least the rows and decisions of that time."""
        recorder, record = self._recorder, self._recorder.checkpoint.record
        assert record is not None
        recorder.history = History()
        for row in record["rows"][: snapshot.rows]:
            recorder.history.add(row)
        recorder.decisions = record["decisions"][: snapshot.decisions]
        recorder.steps, recorder.estimator = snapshot.steps, snapshot.estimator
        recorder.pace = Pace(snapshot.evaluations, snapshot.last_seconds)
        recorder.factor, recorder.answers = snapshot.factor, snapshot.answers

    def record(self) -> dict[str, Any]:
        """All rows and decisions so far, and the clock."""
        recorder, clock = self._recorder, self._recorder.clock
        times = {
            "clock": clock.read(),
            "programs": clock.programs,
            "out_of_time": recorder.limits.out_of_time,
        }
        return {"rows": recorder.history.rows, "decisions": list(recorder.decisions), **times}

    def now(self) -> float:
        """Seconds since the fit began."""
        return self._recorder.clock.total


def checkpoint_of(
    checkpoint: str | os.PathLike[str] | None,
    problem: Problem,
    method: Any,
    seconds: float | None,
    *,
    key: Key[Array, ""],
) -> Checkpoint | NullCheckpoint:
    """The checkpoint of a fit; with its result if it is done and more seconds would not help."""
    if checkpoint is None:
        return NullCheckpoint()
    if problem.feed is not None:
        raise ValueError(
            "a checkpoint is for data in memory, and these stay on disk; leave checkpoint out, or "
            "load them"
        )
    target, q = problem.target, problem.q
    settings = {"batch_size": problem.batch_size, "any_family": problem.any_family}
    if problem.start_given:
        settings["start_given"] = True
    templates = {"family": q, "trained": eqx.filter(q, eqx.is_inexact_array)}
    estimator = getattr(method, "estimator", None)
    if isinstance(estimator, AbstractEstimator):
        templates["estimator"] = estimator
    found = open_checkpoint(checkpoint, identity(target, q, method, key=key, **settings), templates)
    if found.record is not None and found.record["out_of_time"]:
        if seconds is None or seconds > found.record["clock"]["total"]:
            found.result = None
    return found
