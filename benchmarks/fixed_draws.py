"""Which draws to fix: how far below the best ELBO the mean-field optimum at 32 fixed draws lies.

Every kind of draws comes as 16 points and their mirror images. L-BFGS climbs to the optimum at these
draws from the paper's random starts, the same for all kinds, and 8,192 fresh draws judge where it ended.
The best is what any climb at 512 fixed draws reached.

Run from the repository: python benchmarks/fixed_draws.py [--tasks ...] [--starts 8]
"""

import argparse
import itertools
import statistics
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from timing import save

import quietgrad as qg
from quietgrad._numerics.lbfgs import minimise
from quietgrad.evaluation.metrics import elbo_terms
from quietgrad.evaluation.points import Points, equal_magnitude_pairs, iid, sobol_pairs
from quietgrad.solvers.fixed_draws import FixedElbo

TASKS = ("frisk", "counts", "breast-cancer", "a1a", "diabetes", "redwine")
PAIRS, MANY, ITERATIONS, JUDGES = 16, 256, 300, 4096


def latin(base: Any, pairs: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    """Latin hypercubes: every coordinate has one point in each of the equally likely parts."""
    parts = rng.permuted(np.tile(np.arange(pairs), (dim, 1)), axis=1).T
    e = base.host_quantile((parts + rng.random(parts.shape)) / pairs)
    return np.concatenate([e, -e])


def mirrored(base: Any, pairs: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    """Independent draws."""
    e = iid(base, (pairs, dim), rng)
    return np.concatenate([e, -e])


KINDS = {
    "independent": mirrored,
    "scrambled Sobol": sobol_pairs,
    "Latin hypercube": latin,
    "levelled": equal_magnitude_pairs,
}


def row_of(name: str, starts: int) -> dict[str, Any]:
    """ELBOs of every kind from every start, and the best."""
    task = qg.tasks.load(name)
    points, dim = Points(task.train, np.float32), task.dim
    like = qg.MeanField.init(dim, key=jr.key(0))
    half = like.base.sample((JUDGES, dim), like.dtype, key=jr.key(7))
    judges = jnp.concatenate([half, -half])
    judge = jax.jit(lambda q: jnp.mean(elbo_terms(task.train, q, judges)))

    def climbed(start: int, kind: str, pairs: int) -> float:
        q, rng = qg.MeanField.init(dim, key=jr.key(100 + start)), np.random.default_rng(start)
        x = np.concatenate([np.asarray(q.loc, float), np.asarray(q.log_std, float)])
        loss = FixedElbo(points, KINDS[kind](q.base, pairs, dim, rng))
        for at in itertools.islice(minimise(loss, x), ITERATIONS):
            x = at.x
        return float(judge(qg.MeanField.of(x[:dim], x[dim:], q)))

    best = max(climbed(start, "levelled", MANY) for start in range(2))
    ends = {kind: [climbed(start, kind, PAIRS) for start in range(starts)] for kind in KINDS}
    return {"task": name, "best": best, "ends": ends}


def table(rows: list[dict[str, Any]]) -> str:
    """Median nats below the best, and the worst start's."""
    lines = ["| | " + " | ".join(row["task"] for row in rows) + " |", "|" + "---|" * (len(rows) + 1)]
    for kind in KINDS:
        below = [[row["best"] - end for end in row["ends"][kind]] for row in rows]
        cells = [f"{statistics.median(own):.1f} ({max(own):.1f})" for own in below]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Climb, print, store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--starts", type=int, default=8)
    given = parser.parse_args()
    rows = []
    for task in given.tasks:
        rows.append(row_of(task, given.starts))
        save("fixed_draws", rows)
    print(table(rows))


if __name__ == "__main__":
    main()
