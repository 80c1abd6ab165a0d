"""The file of a checkpoint."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._util.atomic import leftovers
from ...results.storage.file import FileKind
from ...results.storage.file import read_file as read
from ...results.storage.file import write_file as write

NAME = "fit.checkpoint"
FORMAT = 4
MAGIC = b"quietgrad checkpoint "
_ANEW = "give another directory, or delete the file to start anew"
CHECKPOINT = FileKind(
    magic=MAGIC,
    # A checkpoint holds the inside of a fit, which the next version may have changed.
    reads=(FORMAT,),
    foreign="; give checkpoint=... another directory",
    unknown=f"; go on with the version that wrote it, {_ANEW}",
    damaged=f"; restore it from a copy, {_ANEW}",
)


def write_file(path: Path, header: dict[str, Any], arrays: Sequence[np.ndarray]) -> None:
    """Write in place of any earlier checkpoint."""
    write(path, CHECKPOINT, header, arrays)


def read_file(path: Path) -> tuple[dict[str, Any], memoryview]:
    """The header and the bytes of all arrays; a `ValueError` if this is not a whole checkpoint."""
    return read(path, CHECKPOINT)[1:]


def sweep(path: Path) -> None:
    """Clear what killed writers left half done, if it is older than the checkpoint."""
    for leftover in leftovers(path):
        if path.exists() and leftover.stat().st_mtime < path.stat().st_mtime:
            leftover.unlink(missing_ok=True)
