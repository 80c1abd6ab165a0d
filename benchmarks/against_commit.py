"""`auto` beside `auto` of an earlier commit: seconds of optimisation to within 1 nat of the best ELBO.

Run from the repository: python benchmarks/against_commit.py [--commit 321b8d4] [--tasks ...]
The earlier commit is checked out into a temporary folder. The two take turns, a process for each task
and family. In a process the first fit compiles and is not counted; then come the starts, the same ones
on both sides. Answers on the way are stored as they are and judged afterwards, all by the same draws, so
that no side's own evaluation counts. An arrival must be held (quietgrad/arrival.py).

Clocks differ: up to 321b8d4 all judging was off the clock; since then the looks that decide how `auto`
goes on are on it. They are timed here and taken off: both sides count the same. The wall clock of
the whole warm fit, with everything, is printed beside it.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from checkouts import COMMIT, both, importing

HERE = Path(__file__).parent
TASKS = ("frisk", "counts", "breast-cancer", "a1a", "diabetes", "redwine")
FAMILIES = {"mean-field": "MeanField", "low-rank": "LowRank", "full-rank": "FullRank"}
# A full-rank Gaussian of a network has two hundred thousand parameters.
LEFT_OUT = {("diabetes", "full-rank"), ("redwine", "full-rank")}
DRAWS, MARGIN = 8192, 1.0
# Bounds of the ratio of seconds and of the loss in nats that count as no worse.
SLOWER, LOWER = 1.1, 0.2


def fits(task_name: str, family: str, starts: int, folder: Path) -> None:
    """Fit from every start in this process, and store the answers on the way; either version's API."""
    import inspect

    import jax
    import jax.random as jr

    import quietgrad as qg

    task, judging = qg.tasks.load(task_name), judge_clock()
    watched = "callback" if "callback" in inspect.signature(qg.fit).parameters else "monitor"
    settings = {} if task.batch_size is None else {"batch_size": task.batch_size}
    for start in (-1, *range(starts)):
        q = getattr(qg, FAMILIES[family]).init(task.dim, key=jr.key(100 + start))
        seen: list[Any] = []
        judging[0] = 0.0

        def keep(moment: Any, *_: Any, seen: list[Any] = seen) -> dict[str, float]:
            seen.append(getattr(moment, "q", moment))
            return {"number": float(len(seen) - 1), "judging": judging[0]}

        began = time.perf_counter()
        result = qg.fit(
            task.train, q, method="auto", key=jr.key(200 + start), **{watched: keep}, **settings
        )
        wall = time.perf_counter() - began
        if start < 0:
            continue
        # A row of the history may stand for an answer that was told before.
        order = np.asarray(result.history["number"], int)
        answers = [*(seen[number] for number in order), result.q]
        # While it is in a simpler family, a fit has not arrived in its own.
        own = [type(answer) is type(result.q) for answer in answers]
        leaves = [
            jax.tree.leaves(answer if ok else result.q) for answer, ok in zip(answers, own, strict=True)
        ]
        stacked = {f"leaf{i}": np.stack([row[i] for row in leaves]) for i in range(len(leaves[0]))}
        seconds = np.asarray(result.history["seconds"], float) - result.history["judging"]
        times = {"seconds": np.append(seconds, seconds[-1]), "own": np.array(own), "wall": wall}
        np.savez(folder / f"{start}.npz", **stacked, **times)


def judge_clock() -> list[float]:
    """One number that counts the seconds of looks at answers, where these are on the clock."""
    spent = [0.0]
    try:
        from quietgrad.evaluation.elbo_terms import Judge
    except ImportError:
        return spent
    look = Judge.terms

    def timed(self: Any, q: Any) -> Any:
        began = time.perf_counter()
        found = look(self, q)
        spent[0] += time.perf_counter() - began
        return found

    Judge.terms = timed
    return spent


def judged(task_name: str, family: str, folders: list[Path]) -> None:
    """Put the ELBO of every stored answer beside it, at the same draws for all."""
    import jax.random as jr

    import quietgrad as qg
    from quietgrad.evaluation.metrics import elbo_terms

    task = qg.tasks.load(task_name)
    like = getattr(qg, FAMILIES[family]).init(task.dim, key=jr.key(0))
    e = like.base.sample((DRAWS // 2, like.base_dim), like.dtype, key=jr.key(7))
    e = np.concatenate([e, -e])
    for file in (file for folder in folders for file in sorted(folder.glob("*.npz"))):
        stored = dict(np.load(file))
        leaves = [stored[name] for name in sorted(n for n in stored if n.startswith("leaf"))]
        elbos = []
        for place, own in enumerate(stored["own"]):
            q = type(like)(*(leaf[place] for leaf in leaves), base=like.base)
            elbos.append(float(np.mean(elbo_terms(task.train, q, e))) if own else -math.inf)
        rows = {"seconds": stored["seconds"].tolist(), "elbo": elbos, "wall": float(stored["wall"])}
        file.with_suffix(".json").write_text(json.dumps(rows))


def in_process(tree: Path, *arguments: str) -> None:
    """This script in a fresh process that imports quietgrad from a tree."""
    call = [sys.executable, __file__, *arguments]
    done = subprocess.run(call, env=importing(tree), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed in {tree}:\n{done.stderr}")


def compared(task: str, family: str, trees: dict[str, Path], starts: int, scratch: Path) -> dict:
    """A row: arrivals, final ELBOs and walls of both sides."""
    from quietgrad.evaluation.arrival import arrival

    folders = {name: scratch / f"{task}-{family}-{name}" for name in trees}
    for name, tree in trees.items():
        folders[name].mkdir()
        in_process(tree, "--fits", task, family, str(starts), str(folders[name]))
    in_process(HERE.parent, "--judge", task, family, *map(str, folders.values()))
    runs = {
        name: [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
        for name, folder in folders.items()
    }
    mark = max(run["elbo"][-1] for own in runs.values() for run in own) - MARGIN
    row: dict[str, Any] = {"task": task, "family": family, "mark": mark}
    for name, own in runs.items():
        times = [arrival(run["seconds"], run["elbo"], mark) for run in own]
        row[name] = {
            "seconds": [math.inf if time is None else time for time in times],
            "elbo": [run["elbo"][-1] for run in own],
            "wall": [run["wall"] for run in own],
        }
    return row


def line(row: dict[str, Any]) -> str:
    """Old and new of a row, medians over starts."""
    old, new = (
        {name: statistics.median(values) for name, values in row[side].items()}
        for side in ("old", "new")
    )
    ratio = new["seconds"] / old["seconds"] if math.isfinite(old["seconds"]) else 0.0
    worse = [f"{ratio:.2f}x"] if not ratio <= SLOWER else []
    worse += ["lower ELBO"] if new["elbo"] < old["elbo"] - LOWER else []
    spans = ["-".join(f"{t:.3f}" for t in sorted(row[side]["seconds"])) for side in ("old", "new")]
    return (
        f"{row['task']:<14} {row['family']:<11} {old['seconds']:.3f} / {new['seconds']:.3f} s"
        f"  ({spans[0]} / {spans[1]})  ELBO {old['elbo']:.2f} / {new['elbo']:.2f}"
        f"  wall {old['wall']:.2f} / {new['wall']:.2f} s  {', '.join(worse) or 'no worse'}"
    )


def main() -> None:
    """Compare every task and family, print old / new, and store the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commit", default=COMMIT)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--name", default="against_commit", help="of the results file")
    parser.add_argument("--fits", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--judge", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fits:
        task, family, starts, folder = given.fits
        return fits(task, family, int(starts), Path(folder))
    if given.judge:
        task, family, *folders = given.judge
        return judged(task, family, [Path(folder) for folder in folders])
    from timing import save

    rows = []
    with both(given.commit) as trees, tempfile.TemporaryDirectory() as scratch:
        for task in given.tasks:
            for family in given.families:
                if (task, family) not in LEFT_OUT:
                    row = compared(task, family, trees, given.starts, Path(scratch))
                    rows.append({"commit": given.commit, **row})
                    print(line(row), flush=True)
                    save(given.name, rows)
    return None


if __name__ == "__main__":
    main()
