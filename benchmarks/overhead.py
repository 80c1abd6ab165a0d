"""What a step costs: estimators against the plain one, and the plain one against bare evaluation.

Run from the repository: python benchmarks/overhead.py [--tasks a1a redwine frisk] [--rounds 15]
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.random as jr
import optax
from rich.console import Console
from rich.table import Table
from timing import bare_step, estimator_step, interleave, save

import quietgrad as qg

MEAN_FIELD = {
    "nocv": {},
    "zvcv-gd": {},
    "zvcv-gd order 2": {"order": 2},
    "zvcv": {},
    "quadcv": {},
    "stl": {},
}
PRODUCTS = "quadcv's products"
# What each ratio must stay under: the plain step against the bare one, the others against nocv.
BOUNDS = {"nocv": 1.10, "zvcv-gd": 1.05, "zvcv-gd order 2": 1.10, "quadcv": 1.25}


def make(name: str, draws: int, settings: dict) -> qg.Pathwise:
    """An estimator from a row's name."""
    return qg.estimator(name.split()[0], draws=draws, **settings)


def products_step(target: Any, q: Any, draws: int) -> tuple[Callable[[Any, Any], Any], Any]:
    """NoCV's step beside the bare arithmetic of QuadCV: five products with 2 x 10 rows, one Adam step.

    A quadratic of this rank is not learned and used for less.
    """
    plain, carry = estimator_step(target, q, make("nocv", draws, {}))
    offset, residual = jr.normal(jr.key(0), (2, draws, q.dim), q.dtype)
    rows, rule = jr.normal(jr.key(1), (20, q.dim), q.dtype), optax.adam(1e-3)

    def step(carry: Any, key: jax.Array) -> Any:
        own, rows, memory, offset, residual = carry
        own = plain(own, key)
        # As late as in QuadCV: the gradients to learn from are those of this step.
        left = offset @ rows.T
        residual = residual + 1e-9 * (own[-1] + left @ rows)
        slope = left.T @ residual + (residual @ rows.T).T @ offset
        moves, memory = rule.update(slope, memory)
        return own, rows + moves, memory, offset, residual

    return step, (carry, rows, rule.init(rows), offset, residual)


def measure(task_name: str, draws: int, rounds: int) -> list[dict]:
    """Rows for one task and number of draws."""
    task = qg.tasks.load(task_name)
    q = qg.MeanField.init(task.dim, key=jr.key(0))
    candidates = {"bare": bare_step(task.train, q, draws)}
    for name, settings in MEAN_FIELD.items():
        candidates[name] = estimator_step(task.train, q, make(name, draws, settings))
    candidates[PRODUCTS] = products_step(task.train, q, draws)
    low = qg.LowRank.init(task.dim, key=jr.key(0))
    for name in ("nocv", "quadcv"):
        candidates[f"{name} (rank 5)"] = estimator_step(task.train, low, make(name, draws, {}))
    against_bare = interleave(
        {name: candidates[name] for name in ("bare", "nocv")}, "bare", rounds=rounds
    )
    names = [*MEAN_FIELD, PRODUCTS]
    mean_field = interleave({name: candidates[name] for name in names}, "nocv", rounds=rounds)
    rank = {name: step for name, step in candidates.items() if "rank" in name}
    rank_rows = interleave(rank, "nocv (rank 5)", rounds=rounds)
    rows = [("nocv", "bare", against_bare["nocv"])]
    rows += [(name, "nocv", row) for name, row in mean_field.items() if name != "nocv"]
    rows += [(name, "nocv (rank 5)", rank_rows[name]) for name in rank if "quadcv" in name]
    bounds = BOUNDS | {"quadcv (rank 5)": 1.35} | ({"zvcv": 1.15} if draws == 10 else {})
    if task_name == "frisk":
        bounds = {"zvcv-gd": 1.2, "quadcv": 2.0}
    return [
        {
            "task": task_name,
            "draws": draws,
            "estimator": name,
            "against": against,
            "microseconds": row["microseconds"],
            "ratio": row["ratio"],
            "bound": bounds.get(name),
        }
        for name, against, row in rows
    ]


def wide_memory() -> dict:
    """Peak memory of ZVCV at d = 100,000 with 50 draws, in a process of its own."""
    code = (
        "import jax, jax.numpy as jnp, jax.random as jr, quietgrad as qg\n"
        "t = qg.Target.from_logdensity(lambda z: -jnp.sum(z**2) / 2, dim=100_000)\n"
        "q = qg.MeanField.init(100_000, key=jr.key(0))\n"
        "for order in (1, 2):\n"
        "    est = qg.estimator('zvcv-gd', draws=50, order=order)\n"
        "    step = jax.jit(lambda k: est.step(t, q, est.init(t, q), key=k)[0].grad)\n"
        "    jax.block_until_ready(step(jr.key(1)))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return {"task": "d = 100,000", "draws": 50, "estimator": "zvcv-gd", "peak_megabytes": peak}


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=["a1a", "redwine", "frisk"])
    parser.add_argument("--draws", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    console, rows = Console(), []
    table = Table(title="cost of a step (median of interleaved ratios)")
    for column in ("task", "draws", "estimator", "µs", "ratio to", "ratio", "bound", ""):
        table.add_column(column)
    wide = wide_memory()
    for task in arguments.tasks:
        for draws in arguments.draws:
            for row in measure(task, draws, arguments.rounds):
                rows.append(row)
                bound = row["bound"]
                verdict = "" if bound is None else ("ok" if row["ratio"] <= bound else "OVER")
                cells = (
                    row["task"],
                    str(row["draws"]),
                    row["estimator"],
                    f"{row['microseconds']:.0f}",
                    row["against"],
                    f"{row['ratio']:.3f}",
                    "" if bound is None else f"{bound:.2f}",
                    verdict,
                )
                table.add_row(*cells)
    console.print(table)
    peak = wide["peak_megabytes"]
    console.print(f"zvcv-gd, orders 1 and 2, d = 100,000, 50 draws: {peak:.0f} MB at peak")
    console.print(f"written to {save('overhead', [*rows, wide]).name}")


if __name__ == "__main__":
    main()
