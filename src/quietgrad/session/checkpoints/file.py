"""The file of a checkpoint: a line with its format, a JSON header, raw arrays, and a digest of it all.

Nothing in it is code and nothing is unpickled. It is replaced in one move, so that a killed writer
leaves the checkpoint before it.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..._util.atomic import leftovers, replacing

NAME = "fit.checkpoint"
FORMAT = 4
MAGIC = b"quietgrad checkpoint "
# Bytes that say how long the header is, and those of the digest at the end.
LENGTH, DIGEST = 8, 32


def write_file(path: Path, header: dict[str, Any], arrays: Sequence[np.ndarray]) -> None:
    """Write in place of any earlier checkpoint."""
    text = json.dumps(header).encode()
    digest = hashlib.sha256()
    with replacing(path) as file:
        start = MAGIC + f"{FORMAT}\n".encode() + len(text).to_bytes(LENGTH, "little") + text
        for part in (start, *(np.ascontiguousarray(array).tobytes() for array in arrays)):
            digest.update(part)
            file.write(part)
        file.write(digest.digest())


def read_file(path: Path) -> tuple[dict[str, Any], memoryview]:
    """The header and the bytes of all arrays; a `ValueError` if this is not a whole checkpoint."""
    content = path.read_bytes()
    line, _, rest = content.partition(b"\n")
    if not line.startswith(MAGIC):
        raise ValueError(f"{path} was not written by quietgrad; give checkpoint=... another directory")
    found = line.removeprefix(MAGIC).decode(errors="replace")
    if found != str(FORMAT):
        raise ValueError(
            f"{path} has format {found}, and this version of quietgrad reads and writes format "
            f"{FORMAT}; go on with the version that wrote it, give another directory, or delete the "
            "file to start anew"
        )
    digest = hashlib.sha256(content[:-DIGEST]).digest()
    if digest != content[-DIGEST:]:
        raise ValueError(
            f"{path} is damaged: it was cut short or changed after it was written; restore it from a "
            "copy, give another directory, or delete the file to start anew"
        )
    length = int.from_bytes(rest[:LENGTH], "little")
    body = memoryview(rest)[LENGTH:-DIGEST]
    return json.loads(bytes(body[:length])), body[length:]


def sweep(path: Path) -> None:
    """Clear what killed writers left half done, if it is older than the checkpoint."""
    for leftover in leftovers(path):
        if path.exists() and leftover.stat().st_mtime < path.stat().st_mtime:
            leftover.unlink(missing_ok=True)
