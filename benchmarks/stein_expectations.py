"""Posterior means from 1,000 NUTS draws: with control variates against the plain mean, on the zoo.

Run from the repository: python benchmarks/stein_expectations.py [--models ...] [--repeats 20] [--again]

A repetition is 4 chains of 250 draws. What is true is known by a formula, or comes from 40 other chains
of 1,000 draws with control variates, whose error is stored beside. Rows that are stored are left.
"""

import argparse
import json
import warnings
from typing import Any

import jax
import jax.random as jr
import numpy as np
import zoo
from rich.console import Console
from rich.table import Table
from timing import RESULTS, save
from zoo.reference import _uphill

import quietgrad as qg
from quietgrad._util.environment import environment

NEAR_GAUSSIAN = ("poisson-regression", "logistic", "diabetes", "many-predictors", "covariance")
OTHERS = (
    "robust-regression",
    "ordinal",
    "schools-noncentred",
    "schools-centred",
    "radon-noncentred",
    "multilevel-logistic",
    "horseshoe",
    "student",
    "skewed",
    "banana",
    "two-bumps",
)
CHAINS, DRAWS, WARM_UP = 4, 250, 500
LONG = 40, 1000
NAME = "stein_expectations"


def sampled(model: zoo.Model, chains: int, draws: int, key: jax.Array) -> np.ndarray:
    """NUTS in the coordinates in which the model is easy, as points of the target."""
    from numpyro.infer import MCMC, NUTS

    key_start, key_run = jr.split(key)
    start = _uphill(model)[None] + 0.1 * jr.normal(key_start, (chains, model.dim))
    mcmc = MCMC(
        NUTS(potential_fn=lambda u: -model.view_density(u), target_accept_prob=model.accept),
        num_warmup=WARM_UP,
        num_samples=draws,
        num_chains=chains,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(key_run, init_params=start)
    found = mcmc.get_samples(group_by_chain=True)
    return np.asarray(jax.jit(jax.vmap(jax.vmap(model.from_view)))(found))


def measured(name: str, repeats: int, seed: int) -> dict[str, Any]:
    """Squared errors of means and deviations over the repetitions, as shares of the plain ones."""
    model = zoo.load(name)
    key_short, key_long = jr.split(jr.key(seed))
    points = sampled(model, CHAINS * repeats, DRAWS, key_short)
    if model.exact is not None:
        mean, std, known = model.exact.mean, model.exact.std, np.zeros(model.dim)
    else:
        long = qg.posterior_expectations(model.target, sampled(model, *LONG, key_long))
        mean, std, known = long.mean["z"], long.std["z"], long.error["z"]
    found = []
    for few in np.split(points, repeats):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            one = qg.posterior_expectations(model.target, few)
        found.append((one, len(told)))
    all_of = {
        what: np.stack([np.atleast_1d(getattr(one, what)["z"]) for one, _ in found])
        for what in ("mean", "error", "std", "plain_mean", "plain_error", "plain_std", "order")
    }
    ours, plain = (np.mean((all_of[k] - mean) ** 2, axis=0) for k in ("mean", "plain_mean"))
    ours_std, plain_std = (np.mean((all_of[k] - std) ** 2, axis=0) for k in ("std", "plain_std"))
    return {
        "model": name,
        "dim": model.dim,
        "near_gaussian": name in NEAR_GAUSSIAN,
        "seed": seed,
        "repeats": repeats,
        # Of the sum over coordinates, each in units of its deviation.
        "ratio": float(np.sum(ours / std**2) / np.sum(plain / std**2)),
        "worst": float(np.max(ours / plain)),
        "ratio_std": float(np.sum(ours_std / std**2) / np.sum(plain_std / std**2)),
        # Deviations from the truth in standard errors, which should spread by one.
        "spread": float(np.sqrt(np.mean(((all_of["mean"] - mean) / all_of["error"]) ** 2))),
        "spread_plain": float(
            np.sqrt(np.mean(((all_of["plain_mean"] - mean) / all_of["plain_error"]) ** 2))
        ),
        "truth_share": float(np.sum((known / std) ** 2) / np.sum(plain / std**2)),
        "orders": [int(np.sum(all_of["order"] == order)) for order in range(3)],
        "warned": sum(count for _, count in found),
        "environment": {k: environment()[k] for k in ("commit", "dirty", "jax", "numpy")},
    }


def main() -> None:
    """Measure what is missing, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=[*NEAR_GAUSSIAN, *OTHERS], choices=zoo.REGISTRY)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="also what is stored")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    path = RESULTS / f"{NAME}.json"
    rows = {row["model"]: row for row in json.loads(path.read_text())["rows"]} if path.exists() else {}
    order = [*NEAR_GAUSSIAN, *OTHERS]
    for name in arguments.models:
        if arguments.again or name not in rows:
            rows[name] = measured(name, arguments.repeats, arguments.seed)
            save(NAME, sorted(rows.values(), key=lambda row: order.index(row["model"])))
            jax.clear_caches()
    table = Table(title="squared error of posterior means, as a share of the plain mean's")
    for column in (
        "model",
        "dim",
        "share",
        "worst coordinate",
        "deviations",
        "spread",
        "orders 0, 1, 2",
    ):
        table.add_column(column)
    for row in rows.values():
        numbers = (f"{row[key]:.2g}" for key in ("ratio", "worst", "ratio_std", "spread"))
        table.add_row(row["model"], str(row["dim"]), *numbers, ", ".join(map(str, row["orders"])))
    Console().print(table)


if __name__ == "__main__":
    main()
