"""Fits of one model in this process: a line of JSON for the environment, then one for each fit.

python -m zoo.cell MODEL TOOL:SEED [TOOL:SEED ...] [--cold]

With --cold nothing compiled is taken from disk, so that the first fit is what a new user waits for.
"""

import json
import math
import subprocess
import sys
from pathlib import Path

from . import load
from .peers import PEERS
from .reference import read


def main(name: str, jobs: list[str], *, cold: bool) -> None:
    """Fit and print."""
    from quietgrad._util.environment import environment
    from quietgrad.scale.compilation_cache import keep_compiled

    from . import fitting, peers

    if not cold:
        keep_compiled()
    print(json.dumps(environment() | {"dirty": changed()}), flush=True)
    model, truth = load(name), read()[name]
    for number, job in enumerate(jobs):
        tool, seed = job.rsplit(":", 1)
        fit = peers.fit if tool in PEERS else fitting.fit
        row = {"model": name, "tool": tool, "seed": int(seed), "cold": cold and number == 0}
        row |= fit(model, truth, tool, int(seed))
        print(json.dumps({key: plain(value) for key, value in row.items()}), flush=True)


def changed() -> bool:
    """Whether code differs from its commit; results that are being written do not count."""
    call = ["git", "status", "--porcelain", "--", "../src", "*.py", "zoo"]
    return bool(
        subprocess.run(call, capture_output=True, text=True, cwd=Path(__file__).parents[1]).stdout
    )


def plain(value: object) -> object:
    """Six digits are enough, and JSON has no infinities."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return -1e300 if value < 0 else 1e300
    return float(f"{value:.6g}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(given[0], [job for job in given[1:] if job != "--cold"], cold="--cold" in given)
