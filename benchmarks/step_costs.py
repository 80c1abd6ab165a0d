"""What a step of each estimator costs, beside the same step of an earlier commit.

Both versions have a process each, which compiles all steps of a task and then waits to be asked. They
take turns, step by step: a turn times a compiled loop of about `BURST` seconds, old and new in an order
that changes from round to round, and the median ratio over rounds counts.

Run from the repository, on a machine that does nothing else: python benchmarks/step_costs.py
[--commit 321b8d4] [--tasks a1a redwine frisk] [--draws 10 50] [--rounds 11]
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from checkouts import COMMIT, both, importing

MEAN_FIELD = ("nocv", "zvcv-gd", "zvcv", "quadcv", "stl", "antithetic", "quiet")
OTHERS = {"LowRank": ("nocv", "quadcv", "quiet"), "FullRank": ("nocv", "quiet")}
# A full-rank Gaussian of a network has two hundred thousand parameters.
LEFT_OUT = {("diabetes", "FullRank"), ("redwine", "FullRank")}
BURST, SLOWER = 0.15, 1.1
# As during a fit. With more, LAPACK's threads spin on into the turn of the other side.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}


def names(task: str) -> list[tuple[str, str]]:
    """Families and estimators that are timed."""
    families = {"MeanField": MEAN_FIELD} | OTHERS
    return [
        (family, estimator)
        for family, estimators in families.items()
        if (task, family) not in LEFT_OUT
        for estimator in estimators
    ]


def answer(task_name: str, draws: int) -> None:
    """Compile every step; then for each line on standard input, time the step of that number."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr
    from timing import estimator_step, loop

    import quietgrad as qg

    target, key = qg.tasks.load(task_name).train, jr.key(0)
    runs = []
    for family, name in names(task_name):
        q = getattr(qg, family).init(target.dim, key=jr.key(0))
        step, carry = estimator_step(target, q, qg.estimator(name, draws=draws))
        run = loop(step)
        jax.block_until_ready(run(carry, key, jnp.asarray(1)))
        runs.append((run, carry))
    print("ready", flush=True)
    for line in sys.stdin:
        number, count = json.loads(line)
        run, carry = runs[number]
        steps = jnp.asarray(count)
        began = time.perf_counter()
        jax.block_until_ready(run(carry, key, steps))
        print(json.dumps((time.perf_counter() - began) / count), flush=True)


class Side:
    """A process that imports one version and times what it is asked to."""

    def __init__(self, tree: Path, task: str, draws: int) -> None:
        """Start it, and wait until everything is compiled."""
        call = [sys.executable, __file__, "--answer", task, str(draws)]
        pipe = subprocess.PIPE
        env = importing(tree) | ONE_THREAD
        self.process = subprocess.Popen(call, env=env, stdin=pipe, stdout=pipe, text=True)
        if self._line() != "ready":
            raise SystemExit(f"{task} with {draws} draws could not be compiled in {tree}")

    def seconds(self, number: int, count: int) -> float:
        """Seconds a step in a loop of `count`."""
        pipe: IO[str] = self.process.stdin  # pyright: ignore[reportAssignmentType]
        pipe.write(json.dumps([number, count]) + "\n")
        pipe.flush()
        return float(self._line())

    def _line(self) -> str:
        pipe: IO[str] = self.process.stdout  # pyright: ignore[reportAssignmentType]
        return pipe.readline().strip()

    def end(self) -> None:
        """Close its input, on which it ends."""
        self.process.communicate()


def compared(trees: dict[str, Path], task: str, draws: int, rounds: int) -> list[dict[str, Any]]:
    """A row for every family and estimator: microseconds of both, and the median of their ratios."""
    sides = {name: Side(tree, task, draws) for name, tree in trees.items()}
    rows = []
    for number, (family, estimator) in enumerate(names(task)):
        count = max(5, int(BURST / max(side.seconds(number, 20) for side in sides.values())))
        turns = []
        for turn in range(rounds):
            order = list(sides) if turn % 2 else list(sides)[::-1]
            turns.append({name: sides[name].seconds(number, count) for name in order})
        medians = {name: 1e6 * statistics.median(t[name] for t in turns) for name in sides}
        ratio = statistics.median(t["new"] / t["old"] for t in turns)
        named = {"task": task, "draws": draws, "family": family, "estimator": estimator}
        rows.append(named | {"microseconds": medians, "ratio": ratio})
    for side in sides.values():
        side.end()
    return rows


def line(row: dict[str, Any]) -> str:
    """Old and new of a row."""
    old, new = (row["microseconds"][name] for name in ("old", "new"))
    verdict = "no worse" if row["ratio"] <= SLOWER else "SLOWER"
    where = f"{row['task']:<9} {row['draws']:>3} draws  {row['family']:<10} {row['estimator']:<11}"
    return f"{where} {old:8.1f} / {new:8.1f} us  {row['ratio']:.2f}x  {verdict}"


def main() -> None:
    """Compare every task, print old / new, and store the rows; or be one of the two processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default=COMMIT)
    parser.add_argument("--tasks", nargs="+", default=["a1a", "redwine", "frisk"])
    parser.add_argument("--draws", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--answer", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.answer:
        return answer(given.answer[0], int(given.answer[1]))
    from timing import save

    rows = []
    with both(given.commit) as trees:
        for task in given.tasks:
            for draws in given.draws:
                for row in compared(trees, task, draws, given.rounds):
                    rows.append({"commit": given.commit, **row})
                    print(line(row), flush=True)
                save("step_costs", rows)
    ratios = [row["ratio"] for row in rows]
    slower = sum(ratio > SLOWER for ratio in ratios)
    print(f"{slower} of {len(rows)} steps are slower than {SLOWER}x those of {given.commit}")
    print(f"ratios: {statistics.median(ratios):.2f} in the median, {max(ratios):.2f} at most")
    return None


if __name__ == "__main__":
    main()
