"""Variance ratios of all estimators against NoCV, at the start and near the optimum, on all tasks.

Run from the repository: python benchmarks/variance.py [--tasks ...] [--draws 10 50] [--repeats 400]
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from rich.console import Console
from rich.table import Table
from timing import save

import quietgrad as qg

ESTIMATORS = {
    "zvcv-gd": {},
    "zvcv-gd 20 steps": {"steps": 20},
    "zvcv-gd to convergence": {"steps": "converge"},
    "zvcv-gd order 2": {"order": 2},
    "zvcv": {},
    "quadcv": {},
    "quadcv-fast": {},
    "taylor": {},
    "stl": {},
    "antithetic": {},
    "rqmc": {},
    "quiet": {},
    "quiet-stein": {},
}
SLOW = {"taylor": 200}  # exact Hessians are for small dimensions


def optimum(task: qg.tasks.Task) -> qg.MeanField:
    """A mean-field fit."""
    q = qg.MeanField.init(task.dim, key=jr.key(1))
    return qg.fit(task.train, q, method="auto", batch_size=task.batch_size, key=jr.key(2)).q


@eqx.filter_jit
def train(target, q, estimator, state, batch_size, count, key):
    """Let an estimator learn at a fixed q."""
    dynamic, static = eqx.partition(state, eqx.is_array)

    def body(t, dynamic):
        key_rows, key_step = jr.split(jr.fold_in(key, t))
        view = target
        if batch_size is not None:
            view = target.batch(jr.choice(key_rows, target.rows, (batch_size,), replace=False))
        state = estimator.step(view, q, eqx.combine(dynamic, static), key=key_step)[1]
        return eqx.filter(state, eqx.is_array)

    return eqx.combine(jax.lax.fori_loop(0, count, body, dynamic), static)


def main() -> None:
    """Measure, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=["a1a", "frisk", "redwine", "redwine-mini"])
    parser.add_argument("--draws", nargs="+", type=int, default=[10, 50])
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--learning-steps", type=int, default=5000)
    arguments = parser.parse_args()
    console, rows = Console(), []
    for name in arguments.tasks:
        task = qg.tasks.load(name)
        places = {"start": qg.MeanField.init(task.dim, key=jr.key(1)), "end": optimum(task)}
        reached = float(qg.elbo(task.train, places["end"], draws=2000, key=jr.key(3)))
        table = Table(title=f"{name}, mean-field: variance over NoCV's (ELBO at the end {reached:.1f})")
        for column in ("estimator", *(f"L={n} {p}" for n in arguments.draws for p in places)):
            table.add_column(column)
        for label, settings in ESTIMATORS.items():
            if task.dim > SLOW.get(label, task.dim):
                table.add_row(label, *["too wide"] * (2 * len(arguments.draws)))
                continue
            cells = []
            for draws in arguments.draws:
                estimator = qg.estimator(label.split()[0], draws=draws, **settings)
                for place, q in places.items():
                    state = estimator.init(task.train, q)
                    count = jnp.asarray(arguments.learning_steps if place == "end" else 0)
                    if label.startswith("quadcv"):
                        state = train(task.train, q, estimator, state, task.batch_size, count, jr.key(4))
                    ratio = qg.variance_ratio(
                        task.train,
                        q,
                        estimator,
                        state=state,
                        repeats=arguments.repeats,
                        batch_size=task.batch_size,
                        key=jr.key(5),
                    )
                    value, error = float(ratio.ratio), float(ratio.error)
                    cells.append(f"{value:.4f} ± {error:.4f}")
                    rows.append(
                        {
                            "task": name,
                            "estimator": label,
                            "draws": draws,
                            "place": place,
                            "ratio": value,
                            "error": error,
                            "blocks": {k: float(v) for k, v in ratio.blocks.items()},
                        }
                    )
            table.add_row(label, *cells)
        console.print(table)
    console.print(f"written to {save('variance', rows).name}")


if __name__ == "__main__":
    main()
