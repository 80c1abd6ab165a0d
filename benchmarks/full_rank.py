"""Where full-rank fits end: on tasks from five seeds, and on a target under affine maps of coordinates.

Every ELBO is evaluated at 16,384 fresh draws. A map changes the log density by its determinant only, so
that a fit that is as good in other coordinates ends at the same ELBO. Seconds do not count here.

Run from the repository: python benchmarks/full_rank.py
"""

import argparse
import json
import os
import subprocess
import sys
from typing import Any

from timing import save

SEEDS, DRAWS, MAPS = 5, 16_384, 4
# What a full-rank fit has to reach, in nats, and how far a map may move it.
BARS = {"frisk": -840.25, "a1a": -655.2, "breast-cancer": -71.35, "counts": -498.9}
MOVED = 0.1
# The condition numbers that each precision has to bear.
CONDITIONS = {"float64": (1e2, 1e4, 1e6), "float32": (1e2, 1e4)}


def ends(name: str) -> dict[str, Any]:
    """The ELBOs of a task's fits."""
    import jax.random as jr

    import quietgrad as qg

    task = qg.tasks.load(name)
    found = []
    for seed in range(SEEDS):
        result = qg.fit(task.train, "full-rank", progress=False, key=jr.key(seed))
        elbo = float(qg.elbo(task.train, result.q, draws=DRAWS, key=jr.key(1000 + seed)))
        found.append({"elbo": elbo, "status": str(result.status)})
    return {"what": name, "fits": found}


def maps(precision: str) -> dict[str, Any]:
    """How far the ELBO moves under maps of each condition number; for a process of this precision."""
    import jax.numpy as jnp
    import jax.random as jr
    import numpy as np

    import quietgrad as qg

    def density(z: Any) -> Any:
        """No Gaussian, and its tails do not overflow however far out a start is."""
        return -3.0 * jnp.sum(jnp.logaddexp(z, -0.5 * z)) - 0.2 * jnp.sum(z) ** 2

    def height(fn: Any) -> float:
        target = qg.Target.from_logdensity(fn, dim=3)
        result = qg.fit(target, "full-rank", progress=False, key=jr.key(0))
        return float(qg.elbo(target, result.q, draws=DRAWS, key=jr.key(1)))

    plain, rows = height(density), []
    for condition in CONDITIONS[precision]:
        for number in range(MAPS):
            rng = np.random.default_rng([int(condition), number])
            left, right = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
            matrix = left @ np.diag(condition ** np.linspace(-0.5, 0.5, 3)) @ right
            inverse, shift = np.linalg.inv(matrix), 5 * rng.standard_normal(3)
            log_det = float(np.linalg.slogdet(matrix)[1])

            def mapped(z: Any, inverse: Any = inverse, shift: Any = shift, det: float = log_det) -> Any:
                return density(jnp.asarray(inverse, z.dtype) @ (z - jnp.asarray(shift, z.dtype))) - det

            rows.append({"condition": condition, "map": number, "moved": height(mapped) - plain})
    return {"what": f"maps, {precision}", "elbo": plain, "fits": rows}


def main() -> int:
    """Each part in a process of its own; exit code 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one part, in this process")
    only = parser.parse_args().only
    if only is not None:
        print(json.dumps(maps(only) if only in CONDITIONS else ends(only)))
        return 0
    rows, missed = [], 0
    for part in (*BARS, *CONDITIONS):
        double = {"JAX_ENABLE_X64": "1" if part == "float64" else "0"}
        call = [sys.executable, __file__, "--only", part]
        done = subprocess.run(
            call, env=os.environ | double, stdout=subprocess.PIPE, text=True, check=True
        )
        row = json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
        if part in BARS:
            elbos = [fit["elbo"] for fit in row["fits"]]
            holds = min(elbos) >= BARS[part]
            print(f"{part}: {min(elbos):.2f} to {max(elbos):.2f}, bar {BARS[part]}: {holds}", flush=True)
        else:
            worst = max(abs(fit["moved"]) for fit in row["fits"])
            holds = worst <= MOVED
            print(f"{row['what']}: moved by {worst:.3f} at most, bar {MOVED}: {holds}", flush=True)
        missed += not holds
    save("full_rank", rows)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
