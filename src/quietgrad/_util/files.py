"""Files that a command writes at its end: looked at before the work, and replaced whole or not."""

import os
from pathlib import Path

from .atomic import replacing


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
