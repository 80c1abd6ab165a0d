"""Opening the checkpoint of a fit: what is there must be whole, and of the same fit."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...results.storage.codec import Decoder
from .checkpoint import Checkpoint
from .file import NAME, read_file, sweep
from .identity import SHOWN, differences


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
        header, body = read_file(path)
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
            "or delete the file to start anew"
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
