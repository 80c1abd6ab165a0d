"""What a step costs, and what a fit takes in memory, against dimension, draws, rows and restarts.

Each point has a process of its own, so that its peak memory is its own. A step is split in three. What
it takes more than a step on a standard Gaussian, whose gradient is the point, is evaluation; making the
draws is timed alone; the rest is the way through the family and the optimiser. The exponent is the slope
of log cost in the upper half of a sweep.

Run from the repository, on a machine that does nothing else: python benchmarks/scaling.py [--quick]
It writes results/scaling.json; --write runs nothing and puts the table into docs/benchmarks.md.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from pages import BENCHMARKS, publish
from timing import RESULTS, save

SWEEPS: dict[str, tuple[int, ...]] = {
    "dim": (100, 1_000, 10_000, 100_000, 1_000_000),
    "draws": (2, 8, 32, 128, 512),
    "rows": (100, 1_000, 10_000, 100_000, 1_000_000),
    "rows, batches of 256": (1_000, 10_000, 100_000, 1_000_000),
    "restarts": (1, 2, 4, 8, 16),
    "devices": (1, 2),
}
INPUTS = 20
# Seconds that a measurement takes at least, and the steps of the shorter and longer one of two fits.
BURST, STEPS, MOST_STEPS = 0.3, 200, 51_200
Row = dict[str, Any]


def regression(rows: int, dim: int) -> Any:
    """A logistic regression on random inputs."""
    import jax.numpy as jnp

    import quietgrad as qg

    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, dim)).astype(np.float32)
    y = (rng.random(rows) < 1 / (1 + np.exp(-x[:, 0]))).astype(np.float32)

    def log_likelihood(z: Any, data: Any) -> Any:
        x, y = data
        return y * (x @ z) - jnp.logaddexp(x @ z, 0.0)

    return qg.Target(lambda z: -0.5 * jnp.sum(z**2), log_likelihood, (x, y), dim=dim)


def many_coordinates(dim: int) -> Any:
    """A density that is not Gaussian in any coordinate, and costs little."""
    import jax.numpy as jnp

    import quietgrad as qg

    return qg.Target.from_logdensity(lambda z: -jnp.sum(jnp.logaddexp(z, -z)), dim=dim)


def seconds_of(call: Callable[[int], Any]) -> float:
    """Seconds of one of many: `call(n)` does n in a compiled loop."""
    call(1)
    began = time.perf_counter()
    call(2)
    count = max(2, min(20_000, int(BURST / max(1e-7, (time.perf_counter() - began) / 2))))
    best = math.inf
    for _ in range(3):
        began = time.perf_counter()
        call(count)
        best = min(best, (time.perf_counter() - began) / count)
    return best


def step_cost(target: Any, draws: int, batch_size: int | None) -> Row:
    """Microseconds of a quiet step with Adam, and the shares of its parts."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr

    import quietgrad as qg

    @jax.jit
    def draw(count: Any) -> Any:
        def body(i: Any, total: Any) -> Any:
            return total + jr.normal(jr.fold_in(jr.key(0), i), (draws // 2, target.dim))

        return jax.lax.fori_loop(0, count, body, jnp.zeros((draws // 2, target.dim)))

    free = qg.Target.from_logdensity(lambda z: -0.5 * jnp.sum(z**2), dim=target.dim)
    # Before the other fits, which have targets of their own in memory.
    whole = seconds_a_step(target, draws, batch_size)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    without = min(whole, seconds_a_step(free, draws, None))
    drawing = min(without, seconds_of(lambda n: jax.block_until_ready(draw(n))))
    shares = {"drawing": drawing / whole, "evaluating": 1 - without / whole}
    return {"microseconds": 1e6 * whole, **shares, "megabytes": round(peak)}


def seconds_a_step(target: Any, draws: int, batch_size: int | None) -> float:
    """From two fits: what a fit takes however many steps it has drops out of the difference."""
    import jax.random as jr
    import optax

    import quietgrad as qg

    q, rule = qg.MeanField.init(target.dim, key=jr.key(0)), optax.adam(1e-3)
    estimator = qg.estimator("quiet", draws=draws)

    def optimising(steps: int) -> float:
        """The least seconds of three fits; compilation has its own clock."""
        method = qg.Sgd(estimator, rule, steps=steps)
        how = {"batch_size": batch_size, "progress": False, "key": jr.key(1)}
        return min(qg.fit(target, q, method=method, **how).clock["optimise"] for _ in range(3))

    short, more = optimising(STEPS), STEPS
    while (spent := optimising(STEPS + more) - short) < BURST and more < MOST_STEPS:
        more = min(MOST_STEPS, 4 * more)
    return max(1e-7, spent / more)


def restarts_cost(count: int) -> Row:
    """Seconds of a warm fit of breast-cancer from so many starts."""
    import jax.random as jr

    import quietgrad as qg

    target = qg.tasks.load("breast-cancer").train
    settings = {"progress": False} if count == 1 else {"progress": False, "restarts": count}
    qg.fit(target, "mean-field", key=jr.key(0), **settings)
    times = []
    for seed in range(1, 6):
        began = time.perf_counter()
        qg.fit(target, "mean-field", key=jr.key(seed), **settings)
        times.append(time.perf_counter() - began)
    return {"microseconds": 1e6 * sorted(times)[2]}


def devices_cost(count: int) -> Row:
    """Microseconds of a step on rows that are spread over so many forced host devices."""
    import jax
    import jax.random as jr
    import optax

    import quietgrad as qg

    mesh = jax.make_mesh((count,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    target = regression(200_000, INPUTS)
    method = qg.Sgd("quiet", optax.adam(1e-3), steps=200)
    how = {"method": method, "mesh": mesh, "progress": False, "key": jr.key(1)}
    times = [qg.fit(target, "mean-field", **how).clock["optimise"] for _ in range(3)]
    return {"microseconds": 1e6 * min(times) / 200}


def point(sweep: str, size: int) -> Row:
    """One point of a sweep, in this process."""
    costs: dict[str, Callable[[], Row]] = {
        "dim": lambda: step_cost(many_coordinates(size), 2, None),
        "draws": lambda: step_cost(regression(1_000, INPUTS), size, None),
        "rows": lambda: step_cost(regression(size, INPUTS), 2, None),
        "rows, batches of 256": lambda: step_cost(regression(size, INPUTS), 2, 256),
        "restarts": lambda: restarts_cost(size),
        "devices": lambda: devices_cost(size),
    }
    cost = costs[sweep]()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"sweep": sweep, "size": size, "megabytes": round(peak), **cost}


def in_fresh_process(sweep: str, size: int) -> Row:
    """The row that this script prints when it is called for one point."""
    flags = os.environ.get("XLA_FLAGS", "")
    if sweep == "devices":
        flags += f" --xla_force_host_platform_device_count={size}"
    call = [sys.executable, __file__, "--only", sweep, str(size)]
    done = subprocess.run(
        call, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"sweep": sweep, "size": size, "failed": done.stderr.strip().splitlines()[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])


def exponent(rows: list[Row], column: str) -> float:
    """The slope of the logarithm against that of the size, in the upper half of a sweep."""
    upper = [row for row in rows if column in row][len(rows) // 2 :]
    if len(upper) < 2:
        return math.nan
    sizes, costs = ([math.log(row[name]) for row in upper] for name in ("size", column))
    return float(np.polyfit(sizes, costs, 1)[0])


def table(rows: list[Row]) -> str:
    """A line for each point, and the exponents of a sweep at its end."""
    lines = ["| against | size | µs | drawing | evaluating | the rest | MB |", "|" + "---|" * 7]
    for sweep in SWEEPS:
        mine = [row for row in rows if row["sweep"] == sweep]
        for row in mine:
            if "failed" in row:
                lines.append(f"| {sweep} | {row['size']:,} | failed: {row['failed']} | | | | |")
                continue
            cells = [sweep, f"{row['size']:,}", f"{row['microseconds']:,.0f}", *_shares(row)]
            lines.append("| " + " | ".join([*cells, f"{row['megabytes']:,}"]) + " |")
        slopes = [exponent(mine, column) for column in ("microseconds", "megabytes")]
        if mine and not any(map(math.isnan, slopes)):
            lines.append(f"| {sweep} | exponent | {slopes[0]:.2f} | | | | {slopes[1]:.2f} |")
    return "\n".join(lines)


def _shares(row: Row) -> list[str]:
    if "drawing" not in row:
        return ["", "", ""]
    drawing, evaluating = row["drawing"], row["evaluating"]
    return [f"{share:.0%}" for share in (drawing, evaluating, 1 - drawing - evaluating)]


def main() -> None:
    """Measure every point, print the table and store it; or be one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the largest sizes")
    parser.add_argument("--sweeps", nargs="+", default=list(SWEEPS))
    parser.add_argument("--write", action="store_true", help="put the stored table into the docs")
    parser.add_argument("--only", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only is not None:
        print(json.dumps(point(given.only[0], int(given.only[1]))))
        return
    if given.write:
        stored = json.loads((RESULTS / "scaling.json").read_text())["rows"]
        publish("scaling", table(stored).splitlines(), BENCHMARKS)
        return
    rows = []
    for sweep in given.sweeps:
        sizes = SWEEPS[sweep][:-1] if given.quick else SWEEPS[sweep]
        for size in sizes:
            rows.append(in_fresh_process(sweep, size))
            print(rows[-1], flush=True)
    print(table(rows))
    save("scaling", rows)


if __name__ == "__main__":
    main()
