"""A file that is replaced in one move: whoever reads it sees the old one or the new one, whole."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of `path` once it is on the disk.

    Named by process, so that two writers never mix. A killed one leaves its file: see `leftovers`.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def leftovers(path: Path) -> list[Path]:
    """What killed writers of `path` left half done."""
    return list(path.parent.glob(f".{path.name}.*.tmp"))
