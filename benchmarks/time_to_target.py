"""Seconds of optimisation to within 1 nat of the best ELBO that anyone finds, from the paper's starts.

Run from the repository: python benchmarks/time_to_target.py [--tasks ...] [--families ...]
Finished runs are kept in results/time_to_target.json; running again does what is missing (--fresh
forgets them). Runs of one start are interleaved: every candidate takes its turn before the next start.
Compilation and evaluation are off the clock, and every candidate is judged by the same fresh draws.
"""

import argparse
import json
from typing import Any

import jax.random as jr
from candidates import CANDIDATES, END_EARLY, FULL_BATCH_ONLY, RICHER, Start
from judging import FINAL_DRAWS, highest, judge_of, records, summary
from rich.console import Console
from rich.table import Table
from timing import RESULTS, save

import quietgrad as qg

# Seconds of optimisation that nobody may exceed.
BUDGET = {
    "frisk": 4.0,
    "a1a": 8.0,
    "redwine": 15.0,
    "redwine-mini": 15.0,
    "counts": 4.0,
    "breast-cancer": 4.0,
    "diabetes": 10.0,
    "diabetes-mini": 10.0,
}
FAMILIES = {
    "mean-field": qg.MeanField,
    "low-rank": qg.LowRank,
    "full-rank": qg.FullRank,
    "real-nvp-affine": qg.AffineRealNVP,
    "real-nvp": qg.RealNVP,
}


def run_one(task: qg.tasks.Task, family: str, name: str, rep: int, best: float | None) -> dict[str, Any]:
    """One candidate from one start."""
    q = FAMILIES[family].init(task.dim, key=jr.fold_in(jr.key(100), rep))
    seconds = BUDGET[task.name]
    stop = qg.Reached(best, column="judged") if best is not None and name in END_EARLY else None
    key = jr.fold_in(jr.key(200), rep)
    start = Start(task, family, q, seconds, stop, judge_of(task, q, jr.key(300)), key)
    result = CANDIDATES[name](start)
    # Posteriors of networks have many equal modes, in which the judge's draws err differently. What they
    # err by at the end of a run, they err by all along its last nats.
    final = judge_of(task, q, jr.key(400), FINAL_DRAWS)(result.q, None, 0)["judged"]
    error = start.judge(result.q, None, 0)["judged"] - final
    return {
        "task": task.name,
        "family": family,
        "candidate": name,
        "rep": rep,
        "budget": seconds,
        "elbo": final,
        "status": str(result.status),
        "compile_seconds": result.compile_seconds,
        **records(result.history, error),
    }


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    """A table for each task and family."""
    table = Table(title="seconds to within 1 nat of the best (median and range over starts)")
    for column in ("task", "family", "candidate", "arrived", "seconds", "x NoCV", "final ELBO"):
        table.add_column(column)
    last = None
    for row in summary(rows):
        place = (row["task"], row["family"])
        if place != last:
            table.add_section()
        last = place
        low, high = row["range"]
        table.add_row(
            *place,
            row["candidate"],
            row["arrived"],
            f"{row['seconds']:.3f} ({low:.3f} to {high:.3f})",
            f"{row['sooner']:.2f}",
            f"{row['elbo']:.2f}",
        )
    console.print(table)


def main() -> None:
    """Run what is missing, print the table, write JSON after every run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=["frisk", "a1a", "redwine", "redwine-mini"])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--candidates", nargs="+", default=list(CANDIDATES), choices=list(CANDIDATES))
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--name", default="time_to_target", help="of the results file")
    arguments = parser.parse_args()
    console, file = Console(width=140), RESULTS / f"{arguments.name}.json"
    rows = json.loads(file.read_text())["rows"] if file.exists() and not arguments.fresh else []
    done = {(r["task"], r["family"], r["candidate"], r["rep"]) for r in rows}
    for task_name in arguments.tasks:
        task = qg.tasks.load(task_name)
        for family in arguments.families:
            for rep in range(arguments.starts):
                for name in arguments.candidates:
                    unfit = (name in FULL_BATCH_ONLY and task.batch_size is not None) or (
                        family != "mean-field" and name not in RICHER
                    )
                    if unfit or (task_name, family, name, rep) in done:
                        continue
                    own = [r for r in rows if (r["task"], r["family"]) == (task_name, family)]
                    row = run_one(task, family, name, rep, highest(own) if own else None)
                    rows.append(row)
                    save(arguments.name, rows)
                    console.print(
                        f"{task_name} {family} {rep} {name}: {row['elbo']:.2f} in "
                        f"{row['seconds'][-1]:.2f} s, {row['status']} "
                        f"(compiled in {row['compile_seconds']:.1f} s)"
                    )
    show(console, rows)
    console.print(f"runs in {file.name}")


if __name__ == "__main__":
    main()
