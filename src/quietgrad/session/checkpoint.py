"""The checkpoint of a fit: the stages it has finished, each with the recorder as it was then.

A method runs from its beginning every time. Where it comes to a stage that the checkpoint has, the
stored outcome takes its place, and the recorder becomes what it was after it. So the checkpoint needs to
know nothing of a method but the order of its stages, which is the same each time.
"""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
from jaxtyping import Array, Key

from .._util.files import leftovers
from ..estimators import AbstractEstimator
from ..results.storage.codec import Decoder, Encoder
from ..results.storage.file import FileKind, read_file, write_file
from .clock import Pace
from .endings import Answers
from .history import History
from .identity import SHOWN, differences, identity
from .problem import Problem

NAME = "fit.checkpoint"
FORMAT = 4
MAGIC = b"quietgrad checkpoint "
_ANEW = "give another directory, or delete the file to start again"
CHECKPOINT = FileKind(
    magic=MAGIC,
    # A checkpoint holds the inside of a fit, which the next version may have changed.
    reads=(FORMAT,),
    foreign="; give checkpoint=... another directory",
    unknown=f"; go on with the version that wrote it, {_ANEW}",
    damaged=f"; restore it from a copy, {_ANEW}",
)
# Writing may take this share of the time.
SHARE = 0.05


def sweep(path: Path) -> None:
    """Clear what killed writers left half done, if it is older than the checkpoint."""
    for leftover in leftovers(path):
        if path.exists() and leftover.stat().st_mtime < path.stat().st_mtime:
            leftover.unlink(missing_ok=True)


class Entry(NamedTuple):
    """A stage: its name, what is stored of it, and the state of the recorder."""

    name: str
    kept: Any
    recorder: Any


@runtime_checkable
class Fit(Protocol):
    """What the checkpoint asks of a recorder."""

    def snapshot(self) -> Any:
        """Its state, as a value that later changes leave alone."""
        ...

    def restore(self, snapshot: Any) -> None:
        """Become what it was."""
        ...

    def record(self) -> dict[str, Any]:
        """What grows row by row, whole, and the clock."""
        ...

    def now(self) -> float:
        """Seconds since the fit began."""
        ...


class Slot:
    """A place in a fit that can be returned to. `stored` is what is there, None if nothing is."""

    def __init__(self, stored: Any = None, store: Callable[[Any], None] = lambda stored: None):
        self.stored, self._store = stored, store

    def store(self, stored: Any) -> None:
        """Store this in place of what was stored here before; not None."""
        self.stored = stored
        self._store(stored)


class NullCheckpoint:
    """For fits without a checkpoint."""

    replaying = False
    record: dict[str, Any] | None = None
    result: dict[str, Any] | None = None

    def slot(self, name: str, fit: Fit) -> Slot:
        """A slot that stores nothing."""
        del name, fit
        return Slot()

    def catch_up(self, fit: Fit) -> None:
        """Nothing to catch up with."""

    def write(self, fit: Fit, result: Mapping[str, Any] | None = None) -> None:
        """Nothing to write."""


class Checkpoint:
    """Writes entries to `path`, as often as its share of the time allows.

    `templates` are what both this process and the next have. `entries`, `record` and `result` are what
    was found on the disk.
    """

    def __init__(
        self,
        path: Path,
        identity: Mapping[str, str],
        templates: Mapping[str, Any],
        *,
        entries: Sequence[Entry] = (),
        record: dict[str, Any] | None = None,
        result: dict[str, Any] | None = None,
    ):
        self.path, self._identity, self._templates = path, dict(identity), dict(templates)
        self._entries, self.record, self.result = list(entries), record, result
        self._stored, self._slots = len(self._entries), 0
        self._written, self._took = 0.0, 0.0

    @property
    def replaying(self) -> bool:
        """Whether stages are still to come whose outcomes are stored."""
        return self._slots < self._stored

    def slot(self, name: str, fit: Fit) -> Slot:
        """The next place to return to, and what is stored of it."""
        number, self._slots = self._slots, self._slots + 1

        def store(kept: Any) -> None:
            assert number <= len(self._entries), "a slot must not be stored inside another one"
            self._entries[number:] = [Entry(name, kept, fit.snapshot())]
            if fit.now() - self._written >= self._took / SHARE:
                self.write(fit)

        if number >= self._stored:
            return Slot(None, store)
        entry = self._entries[number]
        if entry.name != name:
            raise ValueError(
                f"{self.path} has the stage {entry.name!r} where this fit has {name!r}: it was written "
                "by other code; give another directory, or delete the file to start again"
            )
        fit.restore(entry.recorder)
        return Slot(entry.kept, store)

    def catch_up(self, fit: Fit) -> None:
        """After an interruption among stages that are stored: the fit is as far as the checkpoint."""
        if self.replaying:
            fit.restore(self._entries[-1].recorder)

    def write(self, fit: Fit, result: Mapping[str, Any] | None = None) -> None:
        """Write what is kept, and the result of a fit that is done."""
        began = fit.now()
        encoder = Encoder(self._templates)
        value = {"entries": self._entries, "record": fit.record(), "result": result and dict(result)}
        root = encoder.encode(value)
        header = {"identity": self._identity, "root": root, "nodes": encoder.nodes}
        try:
            write_file(self.path, CHECKPOINT, header, encoder.arrays)
            if result is not None:
                sweep(self.path)
        except OSError as error:
            # A full disk is no reason to lose the fit.
            warnings.warn(
                f"{self.path} could not be written ({error}); the fit goes on, and the checkpoint is "
                "the one before",
                stacklevel=2,
            )
        self._written = fit.now()
        self._took = self._written - began


def open_checkpoint(
    directory: str | os.PathLike[str], identity: Mapping[str, str], templates: Mapping[str, Any]
) -> Checkpoint:
    """The checkpoint in a directory, which is made if need be; a `ValueError` if it cannot be used."""
    path = Path(directory) / NAME
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _try_writing(path)
        if not path.exists():
            return Checkpoint(path, identity, templates)
        _, header, body = read_file(path, CHECKPOINT)
        sweep(path)
    except OSError as error:
        raise ValueError(
            f"checkpoint={os.fspath(directory)!r} must be a directory that can be written to: {error}"
        ) from error
    found = differences(header["identity"], identity)
    if found:
        more = f"; and {len(found) - SHOWN} more differences" if len(found) > SHOWN else ""
        raise ValueError(
            f"{path} belongs to another fit. {'; '.join(found[:SHOWN])}{more}. Give another directory, "
            "or delete the file to start again"
        )
    stored = Decoder(header["nodes"], body, templates).decode(header["root"])
    return Checkpoint(path, identity, templates, **stored)


def _try_writing(path: Path) -> None:
    """A folder that cannot be written to is found before the fit, not after its first stage."""
    trial = path.with_name(f".{path.name}.{os.getpid()}.trial")
    try:
        trial.write_bytes(b"")
    finally:
        trial.unlink(missing_ok=True)


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
