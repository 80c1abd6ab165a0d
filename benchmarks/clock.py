"""Whether `result.clock["total"]` is the wait: beside the wall clock of the call, method by method.

A row is right if the two differ by at most 5 % and 50 ms. Fits run one after another in one process, the
first of each kind with its compilation. What a method refuses is said and is no failure.

Run from the repository, on a machine that does nothing else: python benchmarks/clock.py
"""

import argparse
import sys
import time
from typing import Any

import jax.random as jr
from timing import save

import quietgrad as qg

TASKS = ("breast-cancer", "counts")
FAMILIES = ("mean-field", "low-rank", "full-rank", "real-nvp-affine")
METHODS = {"auto": qg.Auto(), "sgd": qg.Sgd(steps=1000), "saa": qg.Saa(), "bam": qg.Bam()}
# Enough for a flow to compile and take some steps; Gaussian fits end before.
SECONDS = 6.0
RELATIVE, ABSOLUTE = 0.05, 0.05


def measure(task: str, family: str, method: str) -> dict[str, Any]:
    """One fit: its own clock beside the wall clock, or the reason why it is refused."""
    target = qg.tasks.load(task).train
    row: dict[str, Any] = {"task": task, "family": family, "method": method}
    began = time.perf_counter()
    try:
        result = qg.fit(
            target, family, method=METHODS[method], seconds=SECONDS, progress=False, key=jr.key(0)
        )
    except ValueError as error:
        return {**row, "refused": str(error)}
    wall, clock = time.perf_counter() - began, result.clock
    right = abs(wall - clock["total"]) <= RELATIVE * wall + ABSOLUTE
    return {**row, "wall": wall, "clock": clock, "status": str(result.status), "right": right}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    given = parser.parse_args()
    rows = []
    for task in given.tasks:
        for family in given.families:
            for method in given.methods:
                row = measure(task, family, method)
                rows.append(row)
                name = f"{task:14} {family:16} {method:5}"
                if "refused" in row:
                    print(f"{name} refused: {row['refused']}", flush=True)
                    continue
                clock = row["clock"]
                parts = "  ".join(f"{phase} {seconds:.3f}" for phase, seconds in clock.items())
                said = "" if row["right"] else "  NOT THE WAIT"
                print(f"{name} wall {row['wall']:.3f}  {parts}  {row['status']}{said}", flush=True)
    save("clock", rows)
    wrong = [row for row in rows if row.get("right") is False]
    print(
        f"{len(wrong)} of {sum('right' in row for row in rows)} fits have a clock that is not the wait"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
