"""Fits in processes of their own: rows come as they are ready, and a process that dies is a row too."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from .judging import DO_NOT_TRUST
from .store import Row

# Seconds without a row after which a process is ended.
LIMIT = 900.0


def lines_of(model: str, jobs: list[tuple[str, int]], *, cold: bool) -> Iterator[Row | str]:
    """What a process with these fits prints."""
    command = [sys.executable, "-m", "zoo.cell", model, *(f"{tool}:{seed}" for tool, seed in jobs)]
    environment = os.environ | {"JAX_ENABLE_X64": "1", "TQDM_DISABLE": "1"}
    return printed(command + ["--cold"] * cold, environment, rows=len(jobs))


def fits(
    model: str,
    jobs: list[tuple[str, int]],
    *,
    cold: bool,
    run: Callable[..., Iterator[Row | str]] = lines_of,
) -> Iterator[tuple[Row, Row]]:
    """Row and environment of each (tool, seed), in their order.

    All are made by one process, so that programs are shared. If it dies or takes too long, the fit it
    was at is a row that says so, and another process goes on with the next.
    """
    left, environment = list(jobs), {}
    while left:
        for line in run(model, list(left), cold=cold):
            if isinstance(line, str):
                tool, seed = left.pop(0)
                yield failed(model, tool, seed, line), environment
            elif "model" in line:
                assert (line["tool"], line["seed"]) == left.pop(0)
                yield line, environment
            else:
                environment = line


def printed(
    command: list[str], environment: dict[str, str], *, rows: int, limit: float = LIMIT
) -> Iterator[Row | str]:
    """What a process prints, and at the end what went wrong, if rows are missing."""
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    # What is printed there must be read, or a full pipe stops the process.
    said: list[str] = []
    reader = threading.Thread(target=lambda: said.append(process.stderr.read()), daemon=True)
    reader.start()
    ready, late = 0, False

    def end() -> None:
        nonlocal late
        late = True
        process.kill()

    timer = threading.Timer(limit, end)
    timer.start()
    try:
        for text in process.stdout:
            if not text.startswith("{"):
                continue
            line = json.loads(text)
            ready += "model" in line
            timer.cancel()
            timer = threading.Timer(limit, end)
            timer.start()
            yield line
        process.wait()
    finally:
        timer.cancel()
        process.kill()
    reader.join(timeout=10)
    if ready < rows:
        # The last line names the error; those above it, places on one machine.
        last = "".join(said).strip().split("\n")[-1]
        yield f"not ready after {limit:.0f} s" if late else last[-400:] or "it died"


def failed(model: str, tool: str, seed: int, fault: str) -> Row:
    """The row of a fit that gave no answer: wrong as can be, but it said so."""
    row = {"model": model, "tool": tool, "seed": seed, "cold": False, "status": "fault"}
    row |= {"hint": fault, "elbo": None, "seconds": None, "verdict": DO_NOT_TRUST}
    nothing = {"mean_error": None, "least_std_ratio": None, "most_std_ratio": None}
    return row | nothing | {"judged_by": "exception", "corrected_error": None}
