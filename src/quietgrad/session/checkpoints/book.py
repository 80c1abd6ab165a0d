"""The book of a fit: the stages it has finished, each with the recorder as it then was.

A method runs from its beginning every time. Where it comes to a stage that the book has, the stored
outcome takes its place, and the recorder becomes what it was after it. So the book needs to know nothing
of a method but the order of its stages, which is the same each time.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ...storage.codec import Encoder
from .file import sweep, write_file

# Writing may take this share of the time.
SHARE = 0.05


class Entry(NamedTuple):
    """A stage: its name, what is kept of it, and the state of the recorder."""

    name: str
    kept: Any
    recorder: Any


@runtime_checkable
class Fit(Protocol):
    """What the book asks of a recorder."""

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


class Mark:
    """A place in a fit that can be returned to. `kept` is what was kept there, None if nothing was."""

    def __init__(self, kept: Any = None, keep: Callable[[Any], None] = lambda kept: None):
        self.kept, self._keep = kept, keep

    def keep(self, kept: Any) -> None:
        """Keep this in place of what was kept here before; not None."""
        self.kept = kept
        self._keep(kept)


class NoBook:
    """For fits without a checkpoint."""

    replaying = False
    record: dict[str, Any] | None = None
    result: dict[str, Any] | None = None

    def mark(self, name: str, fit: Fit) -> Mark:
        """A mark that keeps nothing."""
        del name, fit
        return Mark()

    def catch_up(self, fit: Fit) -> None:
        """Nothing to catch up with."""

    def write(self, fit: Fit, result: Mapping[str, Any] | None = None) -> None:
        """Nothing to write."""


class Book:
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
        self._stored, self._marks = len(self._entries), 0
        self._written, self._took = 0.0, 0.0

    @property
    def replaying(self) -> bool:
        """Whether stages are still to come whose outcomes are stored."""
        return self._marks < self._stored

    def mark(self, name: str, fit: Fit) -> Mark:
        """The next place to return to, and what is kept of it."""
        number, self._marks = self._marks, self._marks + 1

        def keep(kept: Any) -> None:
            assert number <= len(self._entries), "a mark must not be kept inside another one"
            self._entries[number:] = [Entry(name, kept, fit.snapshot())]
            if fit.now() - self._written >= self._took / SHARE:
                self.write(fit)

        if number >= self._stored:
            return Mark(None, keep)
        entry = self._entries[number]
        if entry.name != name:
            raise ValueError(
                f"{self.path} has the stage {entry.name!r} where this fit has {name!r}: it was written "
                "by other code; give another directory, or delete the file to start anew"
            )
        fit.restore(entry.recorder)
        return Mark(entry.kept, keep)

    def catch_up(self, fit: Fit) -> None:
        """After an interruption among stages that are stored: the fit is as far as the book."""
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
