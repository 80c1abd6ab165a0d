"""How long a first fit takes, compilation included: each row in a fresh process without any cache.

The clock runs from before `qg.fit` to its return; imports and reading the data come first, for all.
Where NumPyro is installed, SVI with AutoNormal and 5000 Adam steps fits the same log density beside it.
Every ELBO is evaluated by quietgrad on the same fresh draws.

Run from the repository, on a machine that does nothing else: python benchmarks/first_fit.py
"""

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any

from installed import compile_bytecode
from timing import RESULTS, save

TASKS = ("breast-cancer", "counts", "diabetes", "diabetes-mini")
FLOW = "real-nvp-affine"
FAMILIES = ("mean-field", "low-rank", "full-rank", FLOW)
# A full-rank Gaussian of the network has 182,000 parameters; nobody's first fit.
LEFT_OUT = {(task, family) for task in TASKS[2:] for family in FAMILIES[1:]} | {("counts", FLOW)}
# Seconds that a first fit may take, and as a share of SVI's.
BARS, SHARE = {"mean-field": 3.0, "low-rank": 5.0, "full-rank": 5.0, FLOW: 7.0}, 0.4
FILE = RESULTS / "first_fit.json"
SVI_STEPS, SVI_RATE = 5000, 0.01
DRAWS = 10_000
ISOLATED = {"JAX_ENABLE_COMPILATION_CACHE": "false", "PYTHONHASHSEED": "0"}


def fit_here(task_name: str, family: str, seed: int) -> dict[str, Any]:
    """A row of quietgrad's own, in this process."""
    import jax.random as jr

    import quietgrad as qg

    task = qg.tasks.load(task_name)
    # Names are imported when they are first used, and the first array of a process starts jax itself.
    fit = qg.fit
    key_fit, key_elbo = jr.split(jr.key(seed))
    began = time.perf_counter()
    result = fit(task.train, family, batch_size=task.batch_size, key=key_fit)
    wall = time.perf_counter() - began
    elbo = float(qg.elbo(task.train, result.q, draws=DRAWS, key=key_elbo))
    return {
        "wall": wall,
        "elbo": elbo,
        "clock": result.clock,
        "programs": result.programs,
        "status": str(result.status),
    }


def svi_here(task_name: str, seed: int) -> dict[str, Any]:
    """NumPyro's mean-field fit of the same log density, in this process."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal
    from numpyro.optim import Adam

    import quietgrad as qg

    task = qg.tasks.load(task_name)
    key_fit, key_elbo = jr.split(jr.key(seed))

    def model() -> None:
        real = dist.constraints.real_vector
        z = numpyro.sample("z", dist.ImproperUniform(real, (), (task.dim,)))
        numpyro.factor("log density", task.train.log_density(z))

    began = time.perf_counter()
    guide = AutoNormal(model)
    svi = SVI(model, guide, Adam(SVI_RATE), Trace_ELBO())
    params = jax.block_until_ready(svi.run(key_fit, SVI_STEPS, progress_bar=False).params)
    wall = time.perf_counter() - began
    q = qg.MeanField(params["z_auto_loc"], jnp.log(params["z_auto_scale"]))
    return {"wall": wall, "elbo": float(qg.elbo(task.train, q, draws=DRAWS, key=key_elbo))}


def in_fresh_process(*arguments: str) -> dict[str, Any]:
    """The row that this script prints when it is called with these arguments."""
    call = [sys.executable, __file__, *arguments]
    done = subprocess.run(call, env=os.environ | ISOLATED, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The run with the median wall clock of several, their median ELBO, and both of all."""
    middle = statistics.median_low(run["wall"] for run in runs)
    chosen = next(run for run in runs if run["wall"] == middle)
    elbos = [run["elbo"] for run in runs]
    own = {"walls": [run["wall"] for run in runs], "elbos": elbos, "elbo": statistics.median(elbos)}
    return chosen | own


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table of the README."""
    lines = [
        "| model, family | whole wait, s | compiling | optimising | evaluating | programs | ELBO |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [f"{row['task']}, {row['family']}", f"**{row['wall']:.1f}**"]
        if "clock" in row:
            cells += [f"{row['clock'][name]:.2f}" for name in ("compile", "optimise", "evaluate")]
            cells += [str(row["programs"])]
        else:
            cells = [f"{row['task']}, {row['method']}", f"{row['wall']:.1f}", "", "", "", ""]
        lines.append("| " + " | ".join([*cells, f"{row['elbo']:.1f}".replace("-", "−")]) + " |")
    return "\n".join(lines)


def bars(rows: list[dict[str, Any]]) -> list[str]:
    """Where a row is above its bar; the share is of SVI on the same task."""
    svi = {row["task"]: row["wall"] for row in rows if "clock" not in row}
    above = []
    for row in (row for row in rows if "clock" in row):
        name, most = f"{row['task']}, {row['family']}", BARS.get(row["family"], float("inf"))
        share = row["wall"] / svi.get(row["task"], float("inf"))
        if row["wall"] > most:
            above.append(f"{name}: {row['wall']:.2f} s, above {most} s")
        if row["family"] == "mean-field" and share > SHARE:
            above.append(f"{name}: {share:.2f} of SVI's wait, above {SHARE}")
    return above or ["every first fit is within its bar"]


def main() -> None:
    """Measure every row, print the table and store it; or be one of the fresh processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", nargs=2, metavar=("TASK", "WHAT"), help="one row, in this process")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.only is not None:
        task, what = given.only
        svi = what == "svi"
        print(json.dumps(svi_here(task, given.seed) if svi else fit_here(task, what, given.seed)))
        return
    compile_bytecode()
    # Rows of other tasks and families stay as they were measured; short turns add up to the table.
    stored = json.loads(FILE.read_text())["rows"] if FILE.exists() else []
    rows = {(row["task"], row["family"], row["method"]): row for row in stored}
    has_numpyro = importlib.util.find_spec("numpyro") is not None
    for task in given.tasks:
        wanted = [(f, "auto", f) for f in given.families if (task, f) not in LEFT_OUT]
        if has_numpyro and not task.endswith("-mini"):
            wanted.append(("mean-field", f"NumPyro SVI, AutoNormal, {SVI_STEPS} steps", "svi"))
        # They take turns, each turn with a seed of its own: a slow minute is everyone's.
        runs: dict[str, list[dict[str, Any]]] = {what: [] for *_, what in wanted}
        for seed, what in itertools.product(range(given.repeats), runs):
            runs[what].append(in_fresh_process("--only", task, what, "--seed", str(seed)))
        for family, method, what in wanted:
            row = median(runs[what])
            rows[task, family, method] = {"task": task, "family": family, "method": method, **row}
            walls = ", ".join(f"{wall:.2f}" for wall in row["walls"])
            print(f"{task}, {family}, {method}: {walls} s", flush=True)
        save("first_fit", list(rows.values()))
    found = sorted(rows.values(), key=lambda row: TASKS.index(row["task"]))
    print(markdown(found), *bars(found), sep="\n")


if __name__ == "__main__":
    main()
