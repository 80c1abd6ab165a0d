"""Variance of two draws as pairs, with sticking the landing, and as `quiet` has it, over NoCV's.

Run from the repository: python benchmarks/pairs.py [--repeats 400] [--write]
From mean 0 and scale 1 by Adam at 0.05 with plain gradients of ten draws, after 30 and 300 steps, and
where `auto` ends. `quiet` has looked 40 times at each place. `--write` puts the table into
docs/which-estimator.md.
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from pages import DOCS, publish
from timing import save

import quietgrad as qg
from quietgrad.targets import LogisticRegression

RATE, STEPS, SETTLE = 0.05, (30, 300), 40
PAGE = DOCS / "which-estimator.md"
CASES = (
    ("frisk", "mean-field"),
    ("frisk", "full-rank"),
    ("60-column logistic", "full-rank"),
    ("a1a", "full-rank"),
    ("a1a", "low-rank"),
)
COLUMNS = {
    "`stl`": {"entropy": "stl"},
    "`antithetic`": {"sampler": "antithetic"},
    "both": {"sampler": "antithetic", "entropy": "stl"},
}


def logistic(columns: int = 60) -> qg.Target:
    """Correlated columns of 200 rows, simulated."""
    rng = np.random.default_rng(0)
    order = np.arange(columns)
    x = rng.multivariate_normal(np.zeros(columns), 0.9 ** np.abs(order[:, None] - order), size=200)
    y = rng.random(200) < 1 / (1 + np.exp(-x @ rng.normal(scale=0.5, size=columns)))
    return LogisticRegression().target(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32))


def standard(family: str, dim: int):
    """Mean zero and scale one; factors of a low-rank covariance as they are drawn."""
    q = qg.families.REGISTRY[family].init(dim, key=jr.key(0))
    for name in ("loc", "log_std", "packed"):
        if hasattr(q, name):
            q = eqx.tree_at(lambda q, name=name: getattr(q, name), q, replace_fn=jnp.zeros_like)
    return q


@eqx.filter_jit
def trained(target, q, keys):
    """q after a step of Adam for each key."""
    plain, rule = qg.Pathwise(draws=10), optax.adam(RATE)
    params, static = eqx.partition(q, eqx.is_inexact_array)

    def step(carry, key):
        params, state, memory = carry
        estimate, state = plain.step(target, eqx.combine(params, static), state, key=key)
        change, memory = rule.update(jax.tree.map(jnp.negative, estimate.grad), memory)
        return (optax.apply_updates(params, change), state, memory), None

    start = params, plain.init(target, q), rule.init(params)
    return eqx.combine(jax.lax.scan(step, start, keys)[0][0], static)


@eqx.filter_jit
def settled(target, q, estimator, keys):
    """The state of an estimator that has looked at q once for each key."""

    def look(state, key):
        return estimator.step(target, q, state, key=key)[1], None

    return jax.lax.scan(look, estimator.init(target, q), keys)[0]


def row(target, q, repeats: int) -> dict[str, tuple[float, float]]:
    """Variance ratio and its standard error by column."""
    found = {}
    for name, settings in COLUMNS.items():
        ratio = qg.variance_ratio(
            target, q, qg.Pathwise(draws=2, **settings), repeats=repeats, key=jr.key(2)
        )
        found[name] = (float(ratio.ratio), float(ratio.error))
    quiet = qg.estimator("quiet", draws=2)
    state = settled(target, q, quiet, jr.split(jr.key(3), SETTLE))
    ratio = qg.variance_ratio(target, q, quiet, state=state, repeats=repeats, key=jr.key(2))
    return {**found, "`quiet`": (float(ratio.ratio), float(ratio.error))}


def main() -> None:
    """Measure, print the table, and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=400)
    parser.add_argument("--cases", type=int, default=len(CASES), help="only the first so many")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    heads = ["target, family", "after", *COLUMNS, "`quiet`"]
    lines, rows = [heads, ["---"] * len(heads)], []
    for name, family in CASES[: arguments.cases]:
        target = logistic() if "column" in name else qg.tasks.load(name).train
        places, q, done = {}, standard(family, target.dim), 0
        for steps in STEPS:
            q = trained(target, q, jr.split(jr.key(steps), steps - done))
            places[f"{steps} steps"], done = q, steps
        places["optimum"] = qg.fit(target, family, progress=False, key=jr.key(4)).q
        for where, there in places.items():
            measured = row(target, there, arguments.repeats)
            rows.append({"target": name, "family": family, "after": where, **measured})
            # Four digits where two would be zeros.
            told = [
                f"{ratio:.{2 if ratio >= 0.1 else 3 if ratio >= 0.02 else 4}f} "
                f"({error:.{2 if ratio >= 0.1 else 3 if ratio >= 0.02 else 4}f})"
                for ratio, error in measured.values()
            ]
            lines.append([f"{name}, {family}", where, *told])
            print(*lines[-1], sep=" | ", flush=True)
    save("pairs", rows)
    if arguments.write:
        publish("pairs", [f"| {' | '.join(line)} |" for line in lines], PAGE)


if __name__ == "__main__":
    main()
