"""Where a data file comes from: a folder you name, the user's cache, or a download, in that order.

A download is parsed before it is kept, so the cache never holds an error page or half a file. What was
parsed must have the numbers that are known: their hash is pinned, whatever the white space around them.
"""

import contextlib
import hashlib
import io
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .._util.environment import cache_folder

T = TypeVar("T")

FOLDER_VARIABLE = "QUIETGRAD_DATA"
TIMEOUT = (5.0, 20.0)  # seconds to connect, and to wait for the next bytes


class DataNotFoundError(FileNotFoundError):
    """A data file is in none of the places looked at and could not be downloaded."""


@dataclass(frozen=True)
class RawFile:
    """A file by the name it has in a folder, and the canonical address it is downloaded from.

    `sha256` is the `fingerprint` of what is parsed from it; None accepts whatever parses.
    """

    name: str
    url: str
    sha256: str | None = None


def download(url: str, timeout: tuple[float, float] = TIMEOUT) -> bytes:
    """The bytes at `url`; raises an `OSError` when it does not answer in time."""
    import pooch

    buffer = io.BytesIO()
    pooch.HTTPDownloader(timeout=timeout)(url, buffer, None)
    return buffer.getvalue()


def load(file: RawFile, parse: Callable[[str], T], download: Callable[[str], bytes] = download) -> T:
    """What `parse` makes of the file's text; its `ValueError` is raised again, naming the source.

    Raises `DataNotFoundError`, which says how to supply the file, when there is none.
    """
    path = find(file)
    if path is not None:
        advice = "replace it, or remove it to look for another copy"
        return _parsed(path.read_bytes(), parse, file.sha256, source=str(path), advice=advice)
    try:
        content = download(file.url)
    except (ImportError, OSError) as error:  # every error of `requests` is an OSError
        raise DataNotFoundError(_how_to_supply(file, error)) from error
    advice = f"set {FOLDER_VARIABLE} to a folder that holds a good copy of {file.name}"
    parsed = _parsed(content, parse, file.sha256, source=file.url, advice=advice)
    _keep(content, cache_folder() / file.name)
    return parsed


def find(file: RawFile) -> Path | None:
    """The file in the folder named by QUIETGRAD_DATA, else in the cache; None if in neither."""
    named = os.environ.get(FOLDER_VARIABLE)
    folders = ([Path(named).expanduser()] if named else []) + [cache_folder()]
    return next((path for folder in folders if (path := folder / file.name).is_file()), None)


def places() -> dict[str, str]:
    """Where files are looked for, by name of the place."""
    return {FOLDER_VARIABLE: os.environ.get(FOLDER_VARIABLE, "not set"), "cache": str(cache_folder())}


def fingerprint(arrays: Any) -> str:
    """SHA-256 of the numbers in a tuple of arrays, to six decimals: logs differ in their last bit."""
    found = hashlib.sha256()
    for array in arrays:
        # Minus zero has other bits than zero.
        found.update((np.round(np.asarray(array, "<f8"), 6) + 0.0).tobytes())
    return found.hexdigest()


def _parsed(
    content: bytes, parse: Callable[[str], T], sha256: str | None, *, source: str, advice: str
) -> T:
    try:
        parsed = parse(content.decode("utf-8-sig"))
        if sha256 is not None and (found := fingerprint(parsed)) != sha256:
            raise ValueError(f"expected numbers with the SHA-256 {sha256}, found {found}")
    except ValueError as error:
        raise ValueError(f"unexpected content in {source}: {error}; {advice}") from error
    return parsed


def _keep(content: bytes, path: Path) -> None:
    # A cache that cannot be written costs another download next time, nothing else.
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            partial = Path(folder) / path.name
            partial.write_bytes(content)
            os.replace(partial, path)


def _how_to_supply(file: RawFile, error: Exception) -> str:
    named = os.environ.get(FOLDER_VARIABLE)
    looked = f"not in {FOLDER_VARIABLE}={named}" if named else f"{FOLDER_VARIABLE} is not set"
    return (
        f"{file.name} was not found ({looked}; not in the cache) and could not be downloaded "
        f"({type(error).__name__}: {error}).\nDo one of these:\n"
        f"- set {FOLDER_VARIABLE} to a folder that holds {file.name}\n"
        f"- put {file.name} into the cache folder {cache_folder()}\n"
        f"- be online and `pip install 'quietgrad[study]'`: it is downloaded from {file.url}"
    )
