"""Noise of minibatch gradients, split in that of the data and that of the draws, along a run.

A quiet mean-field fit with a decaying step is stopped at some places, where every estimator is asked for
gradients on the same rows: K keys for each of R batches give the variance within batches (draws) and
between them (data). `joint` brings what it has stored along the run. Adam's norm divides each coordinate
by the root of the second moment of the run's own gradient; the figure is the mean over coordinates. Then
the ELBO that plain batches, averages of iterates, and `joint` reach in equal steps and equal seconds.

Run from the repository: python benchmarks/minibatch.py [--tasks redwine-mini diabetes-mini] [--seeds 2]
"""

import argparse
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jax.flatten_util import ravel_pytree
from rich.console import Console
from rich.table import Table
from timing import save

import quietgrad as qg
from quietgrad.estimators import AbstractEstimator

PLACES = {"start": 0.0, "early": 0.05, "mid": 0.4, "end": 1.0}
RUN = "quiet, 2 draws"
# Label: estimator, its settings, rows in a batch (None for the task's own).
ESTIMATORS: dict[str, tuple[str, dict[str, Any], int | None]] = {
    "nocv, 10 draws": ("nocv", {"draws": 10}, None),
    "stl, 10 draws": ("stl", {"draws": 10}, None),
    RUN: ("quiet", {"draws": 2}, None),
    "quiet, 10 draws": ("quiet", {"draws": 10}, None),
    "joint, 2 draws": ("joint", {"draws": 2}, None),
    "joint, 10 draws": ("joint", {"draws": 10}, None),
    "joint order 2, 10 draws": ("joint", {"draws": 10, "order": 2, "scale": "leave-one-out"}, None),
    "joint order 2, exact, fresh": ("joint", {"draws": 10, "order": 2}, None),
    "quiet, 2 draws, 128 rows": ("quiet", {"draws": 2}, 128),
    "quiet, 2 draws, 256 rows": ("quiet", {"draws": 2}, 256),
}


class Companion(AbstractEstimator):
    """Gradients of one estimator, while another keeps its state up to date along the run."""

    leader: AbstractEstimator
    other: AbstractEstimator

    @property
    def biased(self) -> bool:
        return self.leader.biased

    def refuses(self, target, q):
        return self.leader.refuses(target, q) or self.other.refuses(target, q)

    def _init(self, target, q):
        return self.leader.init(target, q), self.other.init(target, q)

    def step(self, target, q, state, *, key):
        estimate, leader = self.leader.step(target, q, state[0], key=key)
        return estimate, (leader, self.other.step(target, q, state[1], key=key)[1])


def run_to(task, places: dict[str, int], rate: float, key) -> dict[str, tuple[Any, Any]]:
    """The family, and what `joint` has stored, at the given steps of a quiet decayed run."""
    steps, found = max(places.values()), {}

    def look(moment):
        at_hand = moment.q, moment.estimator_state[1] if moment.estimator_state else None
        found.update({name: at_hand for name, at in places.items() if at == moment.step})

    key_start, key_fit = jr.split(key)
    qg.fit(
        task.train,
        qg.MeanField.init(task.dim, key=key_start),
        method=qg.Sgd(
            Companion(qg.estimator("quiet", draws=2), qg.estimator("joint")),
            optax.adam(optax.cosine_decay_schedule(rate, steps)),
            steps,
            evaluate_every=steps // 20,
        ),
        batch_size=task.batch_size,
        callback=look,
        key=key_fit,
    )
    return found


@eqx.filter_jit
def moments(target, q, estimator, state, rows: int, batches: int, key):
    """Mean, and variances within and between batches, in every coordinate; four keys for a batch."""
    keys = 4

    def batch(key):
        key_rows, key_draws = jr.split(key)
        view = target.batch(jr.choice(key_rows, target.rows, (rows,), replace=False))
        grads = jax.vmap(
            lambda k: ravel_pytree(estimator.step(view, q, state, key=k)[0].grad)[0].astype(float)
        )(jr.split(key_draws, keys))
        return jnp.mean(grads, axis=0), jnp.var(grads, axis=0, ddof=1)

    means, within = jax.lax.map(batch, jr.split(key, batches))
    draws = jnp.mean(within, axis=0)
    return jnp.mean(means, axis=0), draws, jnp.var(means, axis=0, ddof=1) - draws / keys


def noise(task, q, joint_state, batches: int, key) -> list[dict[str, Any]]:
    """Every estimator's noise at one place."""
    made = {}
    for label, (name, settings, rows) in ESTIMATORS.items():
        estimator = qg.estimator(name, **settings)
        state = estimator.init(task.train, q)
        # Curvatures of all rows are too dear to bring along; they are taken afresh, the best case.
        if name == "joint" and estimator.order == 1:
            state = joint_state._replace(inside=state.inside)
        rows = task.batch_size if rows is None else min(rows, task.train.rows)
        made[label] = rows, moments(task.train, q, estimator, state, rows, batches, key)
    mean, draws, data = made[RUN][1]
    square = mean**2 + draws + data
    return [
        {
            "estimator": label,
            "rows": rows,
            "trace": {"data": float(jnp.sum(data)), "draws": float(jnp.sum(draws))},
            "adam": {
                "data": float(jnp.sum(data / square)) / square.size,
                "draws": float(jnp.sum(draws / square)) / square.size,
            },
        }
        for label, (rows, (_, draws, data)) in made.items()
    ]


def race(task, steps: int, rate: float, key) -> list[dict[str, Any]]:
    """The ELBO that each way reaches; plain batches also get as many seconds as `joint` takes."""

    def go(name: str, steps: int, *, decay: bool) -> tuple[dict[str, float], float]:
        snapshots = []
        key_start, key_fit, key_end = jr.split(key, 3)
        result = qg.fit(
            task.train,
            qg.MeanField.init(task.dim, key=key_start),
            method=qg.Sgd(
                qg.estimator(name, draws=2),
                optax.adam(optax.cosine_decay_schedule(rate, steps) if decay else rate),
                steps,
            ),
            batch_size=task.batch_size,
            callback=lambda moment: snapshots.append(moment.q),
            key=key_fit,
        )
        half = snapshots[len(snapshots) // 2 :]
        average = jax.tree.map(lambda *x: sum(x[1:], x[0]) / len(x), *half)
        answers = {"decayed": result.q} if decay else {"constant": result.q, "averaged": average}
        reached = {
            way: float(qg.elbo(task.train, q, draws=1000, key=key_end)) for way, q in answers.items()
        }
        return reached, float(result.history["seconds"][-1])

    rows = []
    for decay in (False, True):
        _, quick = plain = go("quiet", steps, decay=decay)
        _, slow = joint = go("joint", steps, decay=decay)
        longer = round(steps * slow / quick)
        runs = {"plain": (steps, plain), "joint": (steps, joint)}
        runs["plain, seconds of joint"] = longer, go("quiet", longer, decay=decay)
        for label, (count, (reached, seconds)) in runs.items():
            for way, elbo in reached.items():
                made = {"estimator": label, "answer": way, "elbo": elbo}
                rows.append({**made, "steps": count, "seconds": seconds})
    return rows


def main() -> None:
    """Measure, print tables, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=["redwine-mini"])
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=3e-2)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    console, rows = Console(width=120), []
    for name in arguments.tasks:
        task = qg.tasks.load(name)
        every = arguments.steps // 20
        places = {label: round(20 * part) * every for label, part in PLACES.items()}
        for place, (q, state) in run_to(task, places, arguments.rate, jr.key(1)).items():
            reached = float(qg.elbo(task.train, q, draws=1000, key=jr.key(3)))
            table = Table(title=f"{name}, {place} (step {places[place]}, ELBO {reached:.1f}): noise")
            for column in (
                "estimator",
                "rows",
                "data",
                "draws",
                "data, Adam",
                "draws, Adam",
                "sum, Adam",
            ):
                table.add_column(column)
            for row in noise(task, q, state, arguments.batches, jr.key(4)):
                trace, adam = row["trace"], row["adam"]
                cells = [f"{trace['data']:.3g}", f"{trace['draws']:.3g}"]
                cells += [f"{x:.4f}" for x in (*adam.values(), sum(adam.values()))]
                table.add_row(row["estimator"], str(row["rows"]), *cells)
                rows.append({"kind": "noise", "task": name, "place": place, "elbo": reached, **row})
            console.print(table)
        table = Table(title=f"{name}: ELBO reached, 2 draws, batches of {task.batch_size}")
        for column in ("seed", "estimator", "answer", "ELBO", "steps", "seconds"):
            table.add_column(column)
        for seed in range(arguments.seeds):
            for row in race(task, arguments.steps, arguments.rate, jr.fold_in(jr.key(5), seed)):
                cells = [f"{row['elbo']:.1f}", str(row["steps"]), f"{row['seconds']:.1f}"]
                table.add_row(str(seed), row["estimator"], row["answer"], *cells)
                rows.append({"kind": "race", "task": name, "seed": seed, **row})
        console.print(table)
    console.print(f"written to {save('minibatch', rows).name}")


if __name__ == "__main__":
    main()
