"""Posteriors of known shape: KL(q||p) in nats against the exact density, and what a cold fit costs.

Each row is a process of its own, from its imports to the fitted q, with nothing compiled before; its
processor seconds are those of the operating system, so that a busy machine changes them little. The KL
is that of 20,000 fresh draws of q. A row has the commit of the code that made it. Others' flows take
three rates, and the rate with the lowest KL speaks for each. Densities are normalised: log Z = 0.

Run from the repository: python benchmarks/shapes.py [--shapes ...] [--tools ...] [--seeds 5]
`--table` prints what is stored.
"""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "shapes.json"
DRAWS = 20_000
RATES = (1e-3, 5e-3, 2e-2)
# Of the other libraries: draws a step, and steps.
PARTICLES, STEPS = 16, 5000
BARS = {"banana": 0.005, "X": 0.02, "two-modes": 0.005, "four-modes": 0.02, "funnel-10": 0.05}
BARS["funnel-100"] = 0.5
OURS = ("auto", "mixture", "autoregressive-flow", "spline-flow", "real-nvp-whitened")
OTHERS = ("numpyro-bnaf", "numpyro-iaf", "flowjax-maf")


def mixture(weights: Any, means: Any, covariances: Any) -> Callable[[Any], Any]:
    """The log density of a mixture of Gaussians."""
    import jax.numpy as jnp
    from jax.scipy.special import logsumexp

    means = np.asarray(means, float)
    roots = np.linalg.cholesky(np.asarray(covariances, float))
    inverse = np.linalg.inv(roots)
    constants = np.log(weights) - means.shape[1] / 2 * math.log(2 * math.pi)
    constants = constants - np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)

    def log_density(z: Any) -> Any:
        x = jnp.einsum("kij,kj->ki", jnp.asarray(inverse, z.dtype), z - jnp.asarray(means, z.dtype))
        return logsumexp(jnp.asarray(constants, z.dtype) - 0.5 * jnp.sum(x**2, axis=1))

    return log_density


def banana(z: Any) -> Any:
    """(z_1, z_1^2 + z_2 + 1) is Gaussian with correlation 0.9."""
    import jax.numpy as jnp

    y = jnp.stack([z[0], z[0] ** 2 + z[1] + 1])
    return mixture([1.0], [[0.0, 0.0]], [[[1.0, 0.9], [0.9, 1.0]]])(y)


def funnel(dim: int) -> Callable[[Any], Any]:
    """v ~ N(0, 3^2), x_i | v ~ N(0, exp(v))."""

    def log_density(z: Any) -> Any:
        import jax.numpy as jnp

        v, x = z[0], z[1:]
        constant = dim / 2 * math.log(2 * math.pi) + math.log(3)
        return -0.5 * (v / 3) ** 2 - 0.5 * jnp.sum(x**2) * jnp.exp(-v) - 0.5 * (dim - 1) * v - constant

    return log_density


def shape(name: str) -> tuple[Callable[[Any], Any], int]:
    """The log density and its dimension."""
    unit, far = np.eye(2), 1.8 * np.array([[0, 1], [1, 0]])
    corners = [(-2, -2), (-2, 2), (2, -2), (2, 2)]
    if name.startswith("funnel-"):
        dim = int(name.removeprefix("funnel-"))
        return funnel(dim), dim
    shapes = {
        "banana": lambda: banana,
        "two-modes": lambda: mixture([0.5, 0.5], [(-2, 0), (2, 0)], [unit, unit]),
        "X": lambda: mixture([0.5, 0.5], [(0, 0), (0, 0)], [2 * unit + far, 2 * unit - far]),
        "four-modes": lambda: mixture([1 / 8, 1 / 8, 1 / 2, 1 / 4], corners, [unit] * 4),
    }
    return shapes[name](), 2


def ours(name: str, family: str, seed: int) -> dict[str, Any]:
    """A fit by this library."""
    import jax

    import quietgrad as qg
    from quietgrad.targets import Target

    log_density, dim = shape(name)
    result = qg.fit(Target(log_density, dim=dim), family, key=jax.random.key(seed))
    spent = processor()
    q = result.q
    e = q.base.sample((DRAWS, q.base_dim), q.dtype, key=jax.random.key(1000 + seed))
    z, log_q = jax.lax.map(q.transport_and_log_prob, e, batch_size=1000)
    found = {"family": type(q).__name__, "status": str(result.status), **spent}
    return {**kl(log_density, z, log_q), **found}


def numpyro_flow(name: str, tool: str, seed: int, rate: float) -> dict[str, Any]:
    """NumPyro's flow guides by SVI, rates that decay to a hundredth."""
    import jax
    import numpyro
    import optax
    from numpyro import distributions as dist
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoBNAFNormal, AutoIAFNormal

    log_density, dim = shape(name)

    def model() -> None:
        z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real_vector, (), (dim,)))
        numpyro.factor("density", log_density(z))

    guide = {"numpyro-bnaf": AutoBNAFNormal, "numpyro-iaf": AutoIAFNormal}[tool](model)
    schedule = optax.exponential_decay(rate, STEPS, 0.01)
    svi = SVI(model, guide, optax.adam(schedule), Trace_ELBO(num_particles=PARTICLES))
    found = svi.run(jax.random.key(seed), STEPS, progress_bar=False)
    jax.block_until_ready(found.params)
    spent = processor()
    flow = guide.get_posterior(found.params)
    key = jax.random.key(1000 + seed)

    def pushed(e: Any) -> tuple[Any, Any]:
        z, total = e, flow.base_dist.log_prob(e)
        for transform in flow.transforms:
            after = transform(z)
            total = total - transform.log_abs_det_jacobian(z, after)
            z = after
        return z, total

    e = flow.base_dist.sample(key, (DRAWS,))
    z, log_q = jax.lax.map(pushed, e, batch_size=1000)
    return {**kl(log_density, z, log_q), "rate": rate, **spent}


def flowjax_flow(name: str, tool: str, seed: int, rate: float) -> dict[str, Any]:
    """FlowJAX's masked autoregressive flow, in the direction that draws fast, by its own training."""
    del tool
    import jax
    import jax.numpy as jnp
    import optax
    from flowjax.distributions import Normal
    from flowjax.flows import masked_autoregressive_flow
    from flowjax.train import fit_to_variational_target
    from flowjax.train.losses import ElboLoss

    log_density, dim = shape(name)
    key, first, second = jax.random.split(jax.random.key(seed), 3)
    flow = masked_autoregressive_flow(first, base_dist=Normal(jnp.zeros(dim)), invert=False)
    loss = ElboLoss(jax.vmap(log_density), num_samples=PARTICLES, stick_the_landing=False)
    optimizer = optax.adam(optax.exponential_decay(rate, STEPS, 0.01))
    flow, _ = fit_to_variational_target(
        second, flow, loss, steps=STEPS, optimizer=optimizer, show_progress=False
    )
    spent = processor()
    z, log_q = flow.sample_and_log_prob(key, (DRAWS,))
    return {**kl(log_density, z, log_q), "rate": rate, **spent}


def kl(log_density: Callable[[Any], Any], z: Any, log_q: Any) -> dict[str, float]:
    """KL(q||p) by draws of q, and its standard error."""
    import jax

    gaps = np.asarray(log_q, float) - np.asarray(jax.vmap(log_density)(z), float)
    return {"kl": float(np.mean(gaps)), "error": float(np.std(gaps) / math.sqrt(len(gaps)))}


def processor() -> dict[str, float]:
    """Processor seconds of this process so far, its imports and its compilations included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {"cpu": round(used.ru_utime + used.ru_stime, 2)}


def cell(name: str, tool: str, seed: int, rate: float | None) -> dict[str, Any]:
    """One fit, in this process."""
    if rate is None:
        found = ours(name, tool, seed)
    else:
        flow = flowjax_flow if tool.startswith("flowjax") else numpyro_flow
        found = flow(name, tool, seed, rate)
    from zoo.cell import changed

    from quietgrad._util.environment import environment

    code = {"commit": environment()["commit"], "dirty": changed()}
    return {"shape": name, "tool": tool, "seed": seed, **found, **code}


def in_own_process(name: str, tool: str, seed: int, rate: float | None, limit: float) -> dict[str, Any]:
    """One fit in a process of its own; what went wrong is a row too."""
    call = [sys.executable, __file__, "--cell", json.dumps([name, tool, seed, rate])]
    began = time.monotonic()
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=limit, check=False)
        last = done.stdout.strip().splitlines()[-1:]
        if done.returncode == 0 and last:
            return json.loads(last[0])
        why = done.stderr.strip().splitlines()[-1:] or ["no output"]
    except subprocess.TimeoutExpired:
        why = [f"no answer after {time.monotonic() - began:.0f} s on the wall"]
    return {"shape": name, "tool": tool, "seed": seed, "rate": rate, "failed": why[0]}


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Medians over seeds; of the others, at their best rate."""
    lines = [
        "| shape | tool | KL, nats: median (worst) | processor s | seeds |",
        "|---|---|---|---|---|",
    ]
    for name in BARS:
        for tool in (*OURS, *OTHERS):
            own = [r for r in rows if (r["shape"], r["tool"]) == (name, tool)]
            if not own:
                continue
            by_rate: dict[Any, list[dict[str, Any]]] = {}
            for row in own:
                by_rate.setdefault(row.get("rate"), []).append(row)
            best = min(by_rate.values(), key=lambda part: statistics.median(map(_kl, part)))
            values, cpu = sorted(map(_kl, best)), [r["cpu"] for r in best if "cpu" in r]
            shown = f"{statistics.median(values):.4f} ({values[-1]:.4f})" if cpu else "no answer"
            seconds = f"{statistics.median(cpu):.1f}" if cpu else "-"
            label = f"{tool}, rate {best[0]['rate']:g}" if best[0].get("rate") else tool
            bar = f" (bar {BARS[name]:g})" if tool == "auto" else ""
            lines.append(f"| {name} | {label} | {shown}{bar} | {seconds} | {len(best)} |")
    return lines


def _kl(row: dict[str, Any]) -> float:
    value = row.get("kl", math.inf)
    return value if math.isfinite(value) else math.inf


def main() -> None:
    """Fit what is asked for, store the rows, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=list(BARS), choices=list(BARS))
    parser.add_argument("--tools", nargs="+", default=[*OURS[:4], *OTHERS], choices=[*OURS, *OTHERS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit", type=float, default=900, help="seconds on the wall for a row")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cell is not None:
        print(json.dumps(cell(*json.loads(given.cell))))
        return
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    if not given.table:
        for seed in range(given.seeds):
            for name in given.shapes:
                for tool in given.tools:
                    for rate in [None] if tool in OURS else RATES:
                        row = in_own_process(name, tool, seed, rate, given.limit)
                        rows = [r for r in rows if _same(r, row) is False] + [row]
                        print(row, flush=True)
                        _store(rows)
    print("\n".join(table(rows)))


def _same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return all(a.get(part) == b.get(part) for part in ("shape", "tool", "seed", "rate"))


def _store(rows: list[dict[str, Any]]) -> None:
    from quietgrad._util.environment import environment

    trial = RESULTS.with_suffix(".part")
    trial.write_text(json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")
    os.replace(trial, RESULTS)


if __name__ == "__main__":
    main()
