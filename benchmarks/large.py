"""Large models and data: seconds and peak memory, each case in a process of its own.

`python benchmarks/large.py` runs all cases, `--only NAME ...` some of them; the rows are in
results/large.json, and `--write` runs nothing and puts them into docs/benchmarks.md. The bounds are
those of a two-core machine that has nothing else to do. The file of ten million rows is written to a
temporary folder (or to `--folder`) and takes 840 MB.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pages import BENCHMARKS, publish
from timing import RESULTS, save

from quietgrad._util.environment import environment

INPUTS = 20
# Seconds and gigabytes that a case may take; None where no bound is set.
CASES = {
    "d1e6-quiet-500-steps": (60, 2.0),
    "d1e5-auto": (25, None),
    "d1e5-low-rank-quiet-500-steps": (None, 2.0),
    "rows2e6-auto": (25, None),
    "rows1e7-memory-map": (None, 2.0),
}
MEANING = {
    "d1e6-quiet-500-steps": "d = 10⁶, mean-field, 500 `quiet` steps and their evaluation",
    "d1e5-auto": "d = 10⁵, mean-field, `auto`",
    "d1e5-low-rank-quiet-500-steps": "d = 10⁵, low-rank, 500 `quiet` steps and their evaluation",
    "rows2e6-auto": f"2·10⁶ rows, {INPUTS} inputs, batches of 256, `auto`",
    "rows1e7-memory-map": "10⁷ rows of a memory map, batches of 256, `auto`",
}


def separable(dim):
    """Skewed and of many scales, in any number of dimensions."""
    import jax.numpy as jnp
    import numpy as np

    import quietgrad as qg

    scale = jnp.asarray(np.geomspace(0.1, 10, dim), jnp.float32)

    def log_density(z):
        u = z / scale
        return jnp.sum(u - jnp.exp(u) - 0.5 * u**2)

    return qg.Target.from_logdensity(log_density, dim=dim)


def narrow(name, dim):
    """A start that does not overflow: of a million draws around a random start, some always do."""
    import jax.numpy as jnp

    import quietgrad as qg

    loc, log_std = jnp.zeros(dim), jnp.full(dim, -3.0)
    if name == "mean-field":
        return qg.MeanField(loc, log_std)
    return qg.LowRank(loc, log_std, jnp.full((5, dim), 1e-3))


def logistic(x, y):
    import jax
    import jax.numpy as jnp

    import quietgrad as qg

    def log_likelihood(z, rows):
        return jax.nn.log_sigmoid(rows["y"] * (rows["x"] @ z))

    return qg.Target(lambda z: -0.5 * jnp.sum(z**2), log_likelihood, {"x": x, "y": y}, dim=INPUTS)


def regression(rows, rng):
    import numpy as np

    x = rng.standard_normal((rows, INPUTS), dtype=np.float32)
    chance = 1 / (1 + np.exp(-x @ np.linspace(-1, 1, INPUTS, dtype=np.float32)))
    y = np.where(rng.random(rows, dtype=np.float32) < chance, 1, -1).astype(np.float32)
    return x, y


def written(folder, rows):
    """Two files of rows, written a piece at a time."""
    import numpy as np

    folder, rng = Path(folder), np.random.default_rng(0)
    shapes = {"x": (rows, INPUTS), "y": (rows,)}
    if not all((folder / f"{name}.npy").exists() for name in shapes):
        files = {
            name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, shape)
            for name, shape in shapes.items()
        }
        for first in range(0, rows, 2**17):
            last = min(first + 2**17, rows)
            files["x"][first:last], files["y"][first:last] = regression(last - first, rng)
    return [np.load(folder / f"{name}.npy", mmap_mode="r") for name in shapes]


def run(name, folder):
    """One case; seconds of the call of `fit` and the peak of resident memory."""
    import jax
    import numpy as np

    import quietgrad as qg

    key, quiet = jax.random.key(0), qg.Sgd("quiet", steps=500)
    calls = {
        "d1e6-quiet-500-steps": lambda: (separable(10**6), narrow("mean-field", 10**6), quiet, None),
        "d1e5-auto": lambda: (separable(10**5), "mean-field", "auto", None),
        "d1e5-low-rank-quiet-500-steps": lambda: (
            separable(10**5),
            narrow("low-rank", 10**5),
            quiet,
            None,
        ),
        "rows2e6-auto": lambda: (
            logistic(*regression(2 * 10**6, np.random.default_rng(0))),
            "mean-field",
            "auto",
            256,
        ),
        "rows1e7-memory-map": lambda: (logistic(*written(folder, 10**7)), "mean-field", "auto", 256),
    }
    target, family, method, batch_size = calls[name]()
    began = time.perf_counter()
    result = qg.fit(target, family, method=method, batch_size=batch_size, key=key)
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    clock = {phase: round(spent, 2) for phase, spent in result.clock.items()}
    row = {"case": name, "seconds": round(seconds, 1), "gigabytes": round(peak, 2), "clock": clock}
    row |= {"steps": result.steps, "elbo": result.elbo, "error": result.elbo_error}
    return {**row, "status": str(result.status), "evaluation": result.evaluation}


def read():
    """The rows that are stored."""
    stored = RESULTS / "large.json"
    return json.loads(stored.read_text())["rows"] if stored.exists() else []


def table(rows):
    """A line for each case, with its bounds."""
    lines = ["| | seconds | GB | bound |", "|---|---|---|---|"]
    for row in rows:
        bounds = zip(CASES[row["case"]], ("s", "GB"), strict=True)
        most = ", ".join(f"{most:g} {unit}" for most, unit in bounds if most)
        cells = [MEANING[row["case"]], f"{row['seconds']:.1f}", f"{row['gigabytes']:.2f}", most]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--folder", default=None, help="where the file of ten million rows is kept")
    parser.add_argument("--write", action="store_true", help="put the stored table into the docs")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        print(json.dumps(run(given.case, given.folder)))
        return 0
    if given.write:
        publish("large", table(read()), BENCHMARKS)
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or temporary
        if "rows1e7-memory-map" in given.only:
            # By another process: what was written would count as the memory of the fit.
            write = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import large; "
            subprocess.run(
                [sys.executable, "-c", f"{write}large.written({str(folder)!r}, 10**7)"], check=True
            )
        for name in given.only:
            call = [sys.executable, __file__, "--case", name, "--folder", str(folder)]
            done = subprocess.run(call, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"{name}: failed\n{done.stderr}", file=sys.stderr)
                return 1
            row = {"commit": environment()["commit"], **json.loads(done.stdout.splitlines()[-1])}
            rows.append(row)
            bounds = zip(("seconds", "gigabytes"), CASES[name], strict=True)
            over = [f"{what} above {most}" for what, most in bounds if most and row[what] > most]
            print(
                f"{name:<32} {row['seconds']:>7.1f} s  {row['gigabytes']:>5.2f} GB  {row['status']:<10}"
                f"  ELBO {row['elbo']:.1f} ± {row['error']:.1f}  {'; '.join(over)}",
                flush=True,
            )
    # Cases that were not run now stay as they were, with the commit that they are of.
    cases = {row["case"]: row for row in (*read(), *rows)}
    save("large", [cases[name] for name in CASES if name in cases])
    return 0


if __name__ == "__main__":
    sys.exit(main())
