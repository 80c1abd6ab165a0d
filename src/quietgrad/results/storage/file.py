"""A file of values: a line with its kind and format, a JSON header, raw arrays, and a digest of it all.

Nothing in it is code and nothing is unpickled. It is replaced in one move, so that a killed writer
leaves the file that was there before.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..._util.files import replacing

# Bytes that say how long the header is, and those of the digest at the end.
LENGTH, DIGEST = 8, 32


class FileKind(NamedTuple):
    """A kind of file: what its first line begins with, which formats are read, and what to do if not.

    `reads` are the formats that this version understands; it writes the last of them. `foreign`,
    `unknown` and `damaged` end the messages about files of another program, of another format, and files
    that were cut short or changed.
    """

    magic: bytes
    reads: tuple[int, ...]
    foreign: str
    unknown: str
    damaged: str

    @property
    def format(self) -> int:
        """The format that is written."""
        return self.reads[-1]


def write_file(path: Path, kind: FileKind, header: dict[str, Any], arrays: Sequence[np.ndarray]) -> None:
    """Write in place of what is there."""
    text = json.dumps(header).encode()
    digest = hashlib.sha256()
    with replacing(path) as file:
        start = kind.magic + f"{kind.format}\n".encode() + len(text).to_bytes(LENGTH, "little") + text
        for part in (start, *(np.ascontiguousarray(array).tobytes() for array in arrays)):
            digest.update(part)
            file.write(part)
        file.write(digest.digest())


def read_file(path: Path, kind: FileKind) -> tuple[int, dict[str, Any], memoryview]:
    """The format, the header and the bytes of all arrays; a `ValueError` unless the file is whole."""
    content = path.read_bytes()
    line, _, rest = content.partition(b"\n")
    if not line.startswith(kind.magic):
        raise ValueError(f"{path} was not written by quietgrad{kind.foreign}")
    found = line.removeprefix(kind.magic).decode(errors="replace")
    if found not in map(str, kind.reads):
        formats = " and ".join(map(str, kind.reads))
        raise ValueError(
            f"{path} has format {found:.20}, and this version of quietgrad reads format {formats}"
            f"{kind.unknown}"
        )
    digest = hashlib.sha256(content[:-DIGEST]).digest()
    if digest != content[-DIGEST:]:
        raise ValueError(
            f"{path} is damaged: it was cut short or changed after it was written{kind.damaged}"
        )
    length = int.from_bytes(rest[:LENGTH], "little")
    body = memoryview(rest)[LENGTH:-DIGEST]
    return int(found), json.loads(bytes(body[:length])), body[length:]
