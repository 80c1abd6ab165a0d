"""The checkpoint of a fit: the stages it has finished, each with the recorder as it then was.

A method runs from its beginning every time. Where it comes to a stage that the checkpoint has, the
stored outcome takes its place, and the recorder becomes what it was after it. So the checkpoint needs to
know nothing of a method but the order of its stages, which is the same each time.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ...results.storage.codec import Encoder
from .file import sweep, write_file

# Writing may take this share of the time.
SHARE = 0.05


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
                "by other code; give another directory, or delete the file to start anew"
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
            write_file(self.path, header, encoder.arrays)
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
