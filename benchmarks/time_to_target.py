"""Seconds of optimisation to within 1 nat of the best ELBO that anyone finds, from the paper's starts.

Run from the repository: python benchmarks/time_to_target.py [--tasks ...] [--families ...]
Finished runs are kept in results/time_to_target.json; running again does what is missing (--fresh
forgets them). Runs of one start are interleaved: every candidate takes its turn before the next start.
Compilation and evaluation are off the clock, and every candidate is judged by the same fresh draws.
"""

import argparse
import json
import math
import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from rich.console import Console
from rich.table import Table
from timing import RESULTS, save

import quietgrad as qg
from quietgrad.metrics import elbo_terms
from quietgrad.samplers import Iid, Rqmc

# Draws that judge a run on its way, and those that judge its end.
JUDGE_DRAWS, FINAL_DRAWS = 1024, 16384
MARGIN = 1.0
NEAR = 20.0
EVALUATIONS = 40
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
    "real-nvp-affine": qg.AffineRealNVP,
    "real-nvp": qg.RealNVP,
}


class Start(NamedTuple):
    """A task, a family, the paper's start of one repetition, and the clock's limit."""

    task: qg.tasks.Task
    family: str
    q: Any
    seconds: float
    stop: qg.Reached | None
    judge: Callable[..., dict[str, float]]
    key: Any

    @property
    def common(self) -> dict[str, Any]:
        """What every method is given."""
        return {"batch_size": self.task.batch_size, "monitor": self.judge, "key": self.key}


def steps_with(start: Start, estimator: Any, **more: Any) -> qg.FitResult:
    """Adam at the paper's rate until the budget ends."""
    rule = optax.adam(start.task.learning_rate(start.family))
    settings = {"optimizer": rule, "progress": False, "evaluation_draws": 2, **start.common, **more}
    settings["estimator"] = estimator
    trial = qg.fit(
        start.task.train, start.q, **{**settings, "monitor": None}, steps=60, evaluate_every=20
    )
    cost = float(np.min(np.diff(trial.history["seconds"]))) / 20
    # Evaluating on all rows is slow when steps see few of them.
    evaluations = 4 * EVALUATIONS if start.task.batch_size is None else EVALUATIONS
    every = max(1, round(start.seconds / evaluations / cost))
    steps = 10 * every * evaluations
    return qg.fit(
        start.task.train,
        start.q,
        **settings,
        steps=steps,
        evaluate_every=every,
        seconds=start.seconds,
        stop=start.stop,
    )


def plain(name: str, **settings: Any) -> Callable[[Start], qg.FitResult]:
    """A registered estimator with Adam at the paper's rate."""
    return lambda start: steps_with(start, qg.estimator(name, **settings))


def automatic(**settings: Any) -> Callable[[Start], qg.FitResult]:
    """`method="auto"`."""

    def run(start: Start) -> qg.FitResult:
        return qg.fit(
            start.task.train, start.q, method="auto", seconds=start.seconds, **start.common, **settings
        )

    return run


def deterministic(**settings: Any) -> Callable[[Start], qg.FitResult]:
    """`method="saa"`; for all rows at once."""

    def run(start: Start) -> qg.FitResult:
        common = {name: value for name, value in start.common.items() if name != "batch_size"}
        return qg.fit(start.task.train, start.q, method="saa", **common, **settings)

    return run


def dadvi(start: Start) -> qg.FitResult:
    """30 fixed independent draws and nothing else, as DADVI does."""
    return deterministic(sampler=Iid(), draws=30, most_draws=30, polish_steps=0, fresh=False)(start)


CANDIDATES: dict[str, Callable[[Start], qg.FitResult]] = {
    "auto": automatic(),
    "saa": deterministic(),
    "quiet": plain("quiet"),
    "rqmc + stl L=8": lambda start: steps_with(
        start, qg.Pathwise(sampler="rqmc", entropy="stl", draws=8)
    ),
    "stl L=10": plain("stl"),
    "quadcv L=10": plain("quadcv"),
    "quadcv-fast L=10": plain("quadcv-fast"),
    "zvcv-gd L=10": plain("zvcv-gd"),
    "auto without climb": automatic(climb=False),
    "quiet, auto's rule": automatic(climb=False, estimator=qg.estimator("quiet")),
    "nocv L=10, auto's rule": automatic(climb=False, estimator=qg.estimator("nocv", draws=10)),
    "nocv L=10, auto's rule and start": automatic(estimator=qg.estimator("nocv", draws=10)),
    "nocv L=10": plain("nocv"),
    "nocv L=50": plain("nocv", draws=50),
    "dadvi": dadvi,
}
FULL_BATCH_ONLY = ("saa", "dadvi", "auto without climb", "nocv L=10, auto's rule and start")
MEAN_FIELD_ONLY = ("dadvi",)
# These end as soon as they are where the others got, which is all that is asked of them.
END_EARLY = ("nocv L=10", "nocv L=50", "zvcv-gd L=10", "stl L=10", "rqmc + stl L=8")
BASELINES = ("nocv L=10", "nocv L=50")


def judge_of(
    task: qg.tasks.Task, q: Any, key: Any, draws: int = JUDGE_DRAWS
) -> Callable[..., dict[str, float]]:
    """The ELBO on draws that no candidate has seen, the same for all; spread ones, for less error."""
    sampler, shape = Rqmc(), (draws, q.base_dim)
    e = sampler.draw(sampler.init(*shape), q.base, shape, q.dtype, key=key)

    def judge(q: Any, state: Any, step: int) -> dict[str, float]:
        del state, step
        return {"judged": float(jnp.mean(elbo_terms(task.train, q, e[:, : q.base_dim])))}

    return judge


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


def records(history: dict[str, np.ndarray], error: float) -> dict[str, list[float]]:
    """When a run was higher than ever before, within `NEAR` nats of its best, and its end."""
    judged = np.where(np.isfinite(history["judged"]), history["judged"], -np.inf)
    judged = judged - (error if math.isfinite(error) else 0.0)
    best = np.maximum.accumulate(judged)
    new = np.diff(best, prepend=-np.inf) > 0
    new &= best > best[-1] - NEAR
    new[-1] = True
    names = {"steps": "step", "seconds": "seconds", "judged": "judged"}
    columns = {**history, "judged": judged}
    return {name: np.round(columns[column][new], 4).tolist() for name, column in names.items()}


def seconds_to(row: dict[str, Any], mark: float) -> float:
    """When a run was first at the mark; its whole budget if never."""
    there = [s for s, elbo in zip(row["seconds"], row["judged"], strict=True) if elbo >= mark]
    return there[0] if there else row["budget"]


def highest(rows: list[dict[str, Any]]) -> float:
    """The best ELBO that a run ended with."""
    return max(row["elbo"] for row in rows if math.isfinite(row["elbo"]))


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Medians over starts for each task, family and candidate."""
    out = []
    for task, family in dict.fromkeys((row["task"], row["family"]) for row in rows):
        own = [row for row in rows if (row["task"], row["family"]) == (task, family)]
        mark = highest(own) - MARGIN
        by_name = {
            name: [row for row in own if row["candidate"] == name]
            for name in CANDIDATES
            if any(row["candidate"] == name for row in own)
        }
        times = {
            n: statistics.median(seconds_to(r, mark) for r in group) for n, group in by_name.items()
        }
        arrived = {n: sum(seconds_to(r, mark) < r["budget"] for r in g) for n, g in by_name.items()}
        baseline = min((times[name] for name in BASELINES if name in times), default=math.nan)
        for name, group in by_name.items():
            out.append(
                {
                    "task": task,
                    "family": family,
                    "candidate": name,
                    "mark": mark,
                    "seconds": times[name],
                    "range": [f(seconds_to(r, mark) for r in group) for f in (min, max)],
                    "arrived": f"{arrived[name]}/{len(group)}",
                    "elbo": statistics.median(row["elbo"] for row in group),
                    "sooner": baseline / times[name] if times[name] > 0 else math.nan,
                }
            )
    return out


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
                        name in MEAN_FIELD_ONLY and family != "mean-field"
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
