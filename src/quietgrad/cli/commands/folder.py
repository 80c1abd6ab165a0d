"""The folder of a fit's results: complete or not there, and never written over unasked."""

import csv
import dataclasses
import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..._util.extras import needs_extra
from ..._util.files import write_whole
from ...diagnostics.diagnosis import Diagnosis
from ...results import FitResult
from . import draws
from .repeat import ARGUMENTS, START

# The file that says that a folder is complete: it comes last, and goes first.
RESULT = "result.json"
# The result as `quietgrad.load` reads it.
SAVED = "fit.quietgrad"
# Files that only some fits have: those of an earlier one must not stay.
SOMETIMES = (*draws.CORRECTED_FILES, ARGUMENTS, START)
# Endings from which a checkpoint goes on.
UNFINISHED = ("interrupted", "budget")


def check_out(out: Path, *, force: bool, resumes: bool = False) -> None:
    """Before a fit: what writes the results is there, and the folder is free or may be replaced.

    A fit that `resumes` from a checkpoint may replace results that were not finished.
    """
    with needs_extra("arviz,plot", "--out"):
        import arviz_base  # noqa: F401
        import h5netcdf  # noqa: F401
        import matplotlib  # noqa: F401
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; name a folder")
    if not out.exists() or not any(out.iterdir()):
        return
    if not (out / RESULT).exists():
        raise ValueError(f"--out {out} has files in it that are no results; name another folder")
    if not force and not (resumes and _unfinished(out)):
        raise ValueError(f"--out {out} has results in it; name another folder, or add --force")


def _unfinished(out: Path) -> bool:
    try:
        return json.loads((out / RESULT).read_text()).get("status") in UNFINISHED
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place when all is written; kept if something fails."""
    out.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f"{out.name}.partial-", dir=out.parent))
    try:
        yield stage
    except BaseException as error:
        error.add_note(f"what was written so far is in {stage}")
        raise
    # A folder of mkdtemp is the user's alone; this one is like any other.
    umask = os.umask(0)
    os.umask(umask)
    stage.chmod(0o777 & ~umask)
    if not out.exists() or not any(out.iterdir()):
        os.replace(stage, out)
        return
    for name in (RESULT, *SOMETIMES):
        (out / name).unlink(missing_ok=True)
    for file in sorted(stage.iterdir(), key=lambda file: file.name == RESULT):
        os.replace(file, out / file.name)
    shutil.rmtree(stage)


def write_history(stage: Path, result: FitResult) -> None:
    """history.csv: one row for each evaluation."""
    with (stage / "history.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(result.history)
        writer.writerows(zip(*(column.tolist() for column in result.history.values()), strict=True))


def write_verdict(
    stage: Path, diagnosis: Diagnosis | None, reason: str, *, refined: bool = False
) -> None:
    """verdict.txt and verdict.json; without a diagnosis they say why there is none."""
    words = f"not diagnosed: {reason}" if diagnosis is None else str(diagnosis)
    verdict = None if diagnosis is None else diagnosis.verdict
    use = draws.which(verdict, refined=refined)
    (stage / "verdict.txt").write_text(f"{words}\nwhich draws: {use}\n")
    document = {"verdict": None, "reasons": [reason]}
    if diagnosis is not None:
        document = {
            field.name: getattr(diagnosis, field.name) for field in dataclasses.fields(diagnosis)
        }
    write_json(stage / "verdict.json", {**document, "which_draws": use})


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Strict JSON: arrays become lists, and numbers that are not finite become null."""
    write_whole(path, json.dumps(_plain(document), indent=1, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(one) for one in (value.tolist() if isinstance(value, np.ndarray) else value)]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, Path) else value
