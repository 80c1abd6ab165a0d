"""Files that are replaced in one move: a reader sees the old one or the new one, each complete."""

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


def check_place(path: Path | None) -> None:
    """Raise now what would be raised after a long fit: a missing folder, a folder in its place."""
    if path is None:
        return
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file in it, as in {path / 'result.json'}")
    folder = path.parent
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder} to write {path.name} to; make it first")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise ValueError(f"{path} cannot be written; name a file in a folder that is yours")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, also when the disk is full."""
    if path.exists() and not path.is_file():
        # A pipe or a device is written to, not replaced.
        path.write_text(text, encoding="utf-8")
        return
    with replacing(path) as file:
        file.write(text.encode())
