"""The same models in other tools: seconds from the user's call to the best ELBO less one nat.

Each run has a fresh process without a compilation cache: a first fit (cold), then a second one with
another seed (warm). Processes of different tools alternate. Imports and reading the data come before the
clock starts, for all. Answers on the way are kept and judged afterwards, all with the same draws, by
quietgrad's log density. The mark is the best ELBO that anyone reached in that family, less one nat.

Run from the repository, on a machine that does nothing else: python benchmarks/peers.py [--quick]
--quick has two models, two families, one rate and a shorter limit. Finished runs are kept in
results/peers.json (peers_quick.json), and a second call does what is missing; --table prints, and
--write puts the table into docs/benchmarks.md.
"""

import argparse
import itertools
import json
import math
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pages import BENCHMARKS, publish
from peers_tables import Row, about, ranking, summary, table
from timing import save

from quietgrad._util.environment import environment

TASKS = ("breast-cancer", "counts", "diabetes", "frisk", "a1a", "redwine")
QUICK = ("breast-cancer", "counts")
FAMILIES = ("mean-field", "low-rank", "full-rank")
QUICK_FAMILIES = ("mean-field", "full-rank")
# A full-rank Gaussian of the network has 200,000 parameters.
LEFT_OUT = {("diabetes", "full-rank"), ("redwine", "full-rank")}
# Seconds that a stochastic run may take, cold and warm each.
LIMIT, QUICK_LIMIT, QUICK_RATE = 10.0, 6.0, 0.01
DRAWS = 4096
ISOLATED = {"JAX_ENABLE_COMPILATION_CACHE": "false", "QUIETGRAD_COMPILED": "off"}
HERE = Path(__file__).parent


def run_here(task_name: str, family: str, tool: str, rate: float | None, seed: int, limit: float) -> Row:
    """A cold and a warm run of one tool in this process, with what it needed."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr
    from contenders import REGISTRY, Snapshot

    import quietgrad as qg

    target = qg.tasks.load(task_name).train

    @jax.jit
    def mean_term(z: jax.Array, log_q: jax.Array) -> jax.Array:
        return jnp.mean(jax.lax.map(target.log_density, z, batch_size=64) - log_q)

    def judged(snapshots: Iterable[Snapshot]) -> list[list[float]]:
        seen = []
        for at in snapshots:
            seen.append(at)
            if at.seconds > limit:
                break
        elbos = [float(mean_term(*at.draw(jr.key(7), DRAWS))) for at in seen]
        return [
            [round(at.seconds, 4), at.steps, round(elbo, 3)]
            for at, elbo in zip(seen, elbos, strict=True)
        ]

    contender = REGISTRY[tool]
    keys = jr.split(jr.key(seed))
    cold, warm = (judged(contender.run(target, family, rate, key=key)) for key in keys)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"cold": cold, "warm": warm, "megabytes": round(peak)}


def plan(given: argparse.Namespace, rows: list[Row]) -> Iterator[Row]:
    """What is missing in `rows`, tools taking turns within a repetition; the caller adds what it did.

    The first repetition has every rate. Only what reached the mark there is repeated, at its best rate.
    """
    from contenders import REGISTRY

    limit = given.limit or (QUICK_LIMIT if given.quick else LIMIT)
    places = [p for p in itertools.product(given.tasks, given.families) if p not in LEFT_OUT]
    for seed, (task, family) in itertools.product(range(given.repeats), places):
        here = [row for row in rows if (row["task"], row["family"]) == (task, family)]
        arrivals = {tool: cold for tool, cold, _, _ in ranking(here)}
        best = {tool: rate for tool, _, rate, _ in ranking(here)}
        have = {(row["tool"], row["rate"]) for row in here if row["seed"] == seed}
        for tool, contender in REGISTRY.items():
            if family not in contender.families or (seed and math.isinf(arrivals.get(tool, math.inf))):
                continue
            rates = contender.rates
            if seed:
                rates = (best[tool],)
            elif given.quick and len(rates) > 1:
                rates = (QUICK_RATE,)
            for rate in rates:
                if (tool, rate) not in have:
                    named = {"task": task, "family": family, "tool": tool, "rate": rate}
                    yield named | {"seed": seed, "limit": limit}


def in_fresh_process(row: Row) -> Row:
    """What this script prints when it is called for one row; a failure is a row too."""
    call = [sys.executable, __file__, "--only", json.dumps(row)]
    done = subprocess.run(call, env=os.environ | ISOLATED, capture_output=True, text=True, check=False)
    row = row | {"commit": environment()["commit"]}
    if done.returncode:
        return row | {"failed": done.stderr.strip().splitlines()[-1][:300]}
    return row | json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Run what is missing, print the table; or be one of the fresh processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=None)
    parser.add_argument("--families", nargs="+", default=None)
    parser.add_argument("--repeats", type=int, default=None)
    parser.add_argument("--quick", action="store_true", help="two models, one repetition, one rate")
    parser.add_argument("--write", action="store_true", help="put the table into the documentation")
    parser.add_argument("--limit", type=float, help="seconds of a stochastic run, cold and warm each")
    parser.add_argument("--table", action="store_true", help="run nothing")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only is not None:
        row = json.loads(given.only)
        known = ("task", "family", "tool", "rate", "seed", "limit")
        print(json.dumps(run_here(*(row[name] for name in known))))
        return
    given.tasks = given.tasks or (QUICK if given.quick else TASKS)
    given.families = given.families or (QUICK_FAMILIES if given.quick else FAMILIES)
    given.repeats = given.repeats or (1 if given.quick else 5)
    file = "peers_quick" if given.quick else "peers"
    stored = HERE / "results" / f"{file}.json"
    rows = json.loads(stored.read_text())["rows"] if stored.exists() else []
    if not given.table and not given.write:
        from contenders import REGISTRY

        for name, contender in REGISTRY.items():
            print(f"{name}: {contender.settings}")
        for row in plan(given, rows):
            print(*row.values(), flush=True)
            rows.append(in_fresh_process(row))
            save(file, rows)
    print(summary(rows), table(rows), sep="\n\n")
    if given.write:
        command = f"python benchmarks/peers.py{' --quick' if given.quick else ''}"
        first = [about(rows, command), "", *summary(rows).splitlines()]
        publish("peers", [*first, "", "All of them:", "", *table(rows).splitlines()], BENCHMARKS)


if __name__ == "__main__":
    main()
