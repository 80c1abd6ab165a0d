"""What a fit takes once something has been compiled: a second process, new data, sixteen starts.

Run from the repository, on a machine that does nothing else: python benchmarks/second_fit.py
- a second process finds the programs of the first in the cache on disk;
- in one process, the same code with other data of the same shapes compiles nothing;
- sixteen restarts cost some fits' worth, not sixteen.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from installed import compile_bytecode
from timing import save

TASK, FAMILIES = "breast-cancer", ("mean-field", "full-rank")
STARTS = 16
# Seconds of a second process; a warm fit's wall clock by its optimisation's; restarts by one fit.
SECOND_PROCESS, SHARE, MORE, RESTARTS = 1.2, 1.5, 0.1, 4.0


def timed(call: Any) -> tuple[float, Any]:
    began = time.perf_counter()
    result = call()
    return time.perf_counter() - began, result


def fit_here(family: str) -> dict[str, Any]:
    """The first fit of this process."""
    import jax.random as jr

    import quietgrad as qg

    target, fit, key = qg.tasks.load(TASK).train, qg.fit, jr.key(0)
    wall, _ = timed(lambda: fit(target, family, key=key))
    return {"wall": wall}


def warm_here(family: str, repeats: int) -> dict[str, Any]:
    """Fits to other data, and from many starts, in a process that has compiled what they need."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr
    import numpy as np

    import quietgrad as qg

    x, y = qg.tasks.load(TASK).train.data
    rng = np.random.default_rng(0)

    def made(number: int) -> qg.Target:
        rows = rng.integers(0, len(y), len(y)) if number else np.arange(len(y))
        inputs, labels = jnp.asarray(x)[rows], jnp.asarray(y)[rows]

        def log_likelihood(z: jax.Array, data: Any) -> jax.Array:
            return jax.nn.log_sigmoid((2 * data[1] - 1) * (data[0] @ z[: data[0].shape[1]]))

        def log_prior(z: jax.Array) -> jax.Array:
            return -0.5 * jnp.sum(z**2) / 4

        return qg.Target(log_prior, log_likelihood, (inputs, labels), dim=x.shape[1])

    qg.fit(made(0), family, restarts=STARTS, key=jr.key(0))
    qg.fit(made(0), family, key=jr.key(0))
    rows: list[dict[str, Any]] = []
    for number in range(1, repeats + 1):
        target = made(number)
        wall, one = timed(lambda target=target, n=number: qg.fit(target, family, key=jr.key(n)))
        many, best = timed(
            lambda target=target, n=number: qg.fit(target, family, restarts=STARTS, key=jr.key(n))
        )
        rows.append({"wall": wall, "optimise": one.clock["optimise"], "programs": one.programs})
        rows[-1] |= {"restarts": many, "restarts_programs": best.programs}
    return {name: statistics.median(row[name] for row in rows) for name in rows[0]}


def in_process(env: dict[str, str], *arguments: str) -> dict[str, Any]:
    call = [sys.executable, __file__, *arguments]
    done = subprocess.run(call, env=os.environ | env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure every family, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--here", choices=FAMILIES, help=argparse.SUPPRESS)
    parser.add_argument("--warm", choices=FAMILIES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        return print(json.dumps(fit_here(given.here)))
    if given.warm:
        return print(json.dumps(warm_here(given.warm, given.repeats)))
    compile_bytecode()
    rows = []
    for family in FAMILIES:
        with tempfile.TemporaryDirectory() as folder:
            cached = [
                in_process({"QUIETGRAD_COMPILED": folder}, "--here", family)["wall"]
                for _ in range(1 + given.repeats)
            ]
        second = statistics.median(cached[1:])
        warm = in_process({}, "--warm", family, "--repeats", str(given.repeats))
        rows.append({"family": family, "first": cached[0], "second": second, **warm})
        print(
            f"{TASK}, {family}: first process {cached[0]:.2f} s, second {second:.2f} s (bar "
            f"{SECOND_PROCESS}); other data {warm['wall']:.3f} s with {warm['programs']:.0f} programs, "
            f"optimising {warm['optimise']:.3f} s (bar {SHARE * warm['optimise'] + MORE:.3f}); {STARTS} "
            f"restarts {warm['restarts'] / warm['wall']:.1f} times one (bar {RESTARTS:.0f})",
            flush=True,
        )
    save("second_fit", rows)
    return None


if __name__ == "__main__":
    main()
