"""The state of a recorder as a value: taken at a mark of the checkpoint, and put back there."""

from typing import TYPE_CHECKING, Any, NamedTuple

from ..estimators import AbstractEstimator
from .answers import Answers
from .history import History
from .looks import Looks
from .problem import Candidate

if TYPE_CHECKING:
    from .recorder import Recorder


class Snapshot(NamedTuple):
    """What a recorder knows. Of what only grows, rows and decisions, their number is enough."""

    rows: int
    decisions: int
    steps: int
    estimator: AbstractEstimator | None
    looks: int
    last_look: float
    factor: float
    start: Candidate | None
    last: Candidate | None
    best: Candidate | None
    own: Candidate | None
    prefer_last: bool
    saw_bad: bool


def taken(recorder: "Recorder") -> Snapshot:
    """The state of a recorder now."""
    answers = recorder.answers
    return Snapshot(
        len(recorder.history),
        len(recorder.decisions),
        recorder.steps,
        recorder.estimator,
        recorder.looks.count,
        recorder.looks.last,
        recorder.factor,
        *(getattr(answers, name) for name in Snapshot._fields[7:]),
    )


def put_back(recorder: "Recorder", state: Snapshot, record: dict[str, Any]) -> None:
    """Make a recorder what it was; `record` has at least the rows and decisions of that time."""
    recorder.history = History()
    for row in record["rows"][: state.rows]:
        recorder.history.add(row)
    recorder.decisions = record["decisions"][: state.decisions]
    recorder.steps, recorder.estimator = state.steps, state.estimator
    recorder.looks, recorder.factor = Looks(state.looks, state.last_look), state.factor
    answers = Answers()
    for name in Snapshot._fields[7:]:
        setattr(answers, name, getattr(state, name))
    recorder.answers = answers


class Kept:
    """A recorder as its book sees it."""

    def __init__(self, recorder: "Recorder"):
        self._recorder = recorder

    def snapshot(self) -> Snapshot:
        """Its state now."""
        return taken(self._recorder)

    def restore(self, snapshot: Snapshot) -> None:
        """Make it what the book says it was."""
        record = self._recorder.book.record
        assert record is not None
        put_back(self._recorder, snapshot, record)

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
