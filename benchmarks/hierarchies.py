"""Hierarchies against exact answers, long chains and other tools: wait, memory, nats and errors.

`python benchmarks/hierarchies.py` runs every case in a process of its own (`--only NAME ...` some of
them, `--seeds` for more than one) and replaces their rows in results/hierarchies.json; `peers` adds rows
of NumPyro's guides (`--guides` some of them) on the state spaces and on the large models, where each has
as many processor seconds as our stored row; `reference` makes the long chains, `table --write` puts the
table into docs/hierarchies.md. Programs are compiled anew in each process, in single precision.
Processor seconds stand beside the wait, because other work on the machine does not count there.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from hierarchy_cases import (
    BY_CHAINS,
    LARGE,
    NAMES,
    NORMAL,
    STATES,
    case,
    chain_model,
    state_space,
    store,
)
from hierarchy_peers import GUIDES, LARGE_GUIDES, guide_of, rows_of
from installed import compile_bytecode
from pages import DOCS, publish
from timing import RESULTS, save

# Coordinates up to which chains have a dense mass.
MOST_DENSE = 100


def main() -> None:
    """Run cases, or one of them within its own process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", default="run", choices=["run", "peers", "reference", "table"])
    parser.add_argument("--only", nargs="+", choices=NAMES, default=None)
    parser.add_argument("--guides", nargs="+", choices=list(dict.fromkeys([*GUIDES, *LARGE_GUIDES])))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--case", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case is not None:
        name, *rest = given.case
        print(json.dumps(peer(name, rest[1]) if rest[0] == "peer" else run(name, int(rest[0]))))
    elif given.what == "table":
        lines = table(rows())
        print("\n".join(lines))
        if given.write:
            publish("hierarchies", lines, DOCS / "hierarchies.md")
    elif given.what == "reference":
        references(given.only or BY_CHAINS)
    elif given.what == "peers":
        all = [(name, "peer", guide) for name in STATES for guide in GUIDES]
        all += [(name, "peer", guide) for name in LARGE for guide in LARGE_GUIDES]
        all = [one for one in all if given.only is None or one[0] in given.only]
        measure([one for one in all if given.guides is None or one[2] in given.guides])
    else:
        measure([(name, str(seed)) for name in given.only or NAMES for seed in given.seeds])


def measure(cells: list[tuple[str, ...]]) -> None:
    """Each in a process with empty caches; rows replace those of the same cells."""
    failed = 0
    compile_bytecode()
    for cell in cells:
        with tempfile.TemporaryDirectory() as home:
            command = [sys.executable, __file__, "--case", *cell]
            around = os.environ | {"HOME": home, "XDG_CACHE_HOME": home}
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=around)
        if done.returncode:
            failed += 1
            print(f"{' '.join(cell)}: {done.stderr[-2000:]}", file=sys.stderr)
            continue
        made = json.loads(done.stdout.splitlines()[-1])
        made = made if isinstance(made, list) else [made]
        for row in made:
            print("  ".join(f"{key} {shown(value)}" for key, value in row.items()), flush=True)
        taken = {identity(row) for row in made}
        save("hierarchies", [row for row in rows() if identity(row) not in taken] + made)
    sys.exit(1 if failed else 0)


def rows() -> list[dict[str, Any]]:
    """Those that are stored."""
    path = RESULTS / "hierarchies.json"
    return json.loads(path.read_text())["rows"] if path.exists() else []


def identity(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a row is of."""
    # Peers on a large model have one row, whatever steps there was time for.
    steps = None if row["case"] in LARGE else row.get("steps")
    return row["case"], row.get("tool"), row.get("rate"), steps, row.get("seed")


def shown(value: object) -> str:
    """Numbers with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def run(name: str, seed: int) -> dict[str, object]:
    """One row: the fit, its verdict, and what is known of the answer."""
    import jax.random as jr

    import quietgrad as qg

    known = case(name)
    start = time.perf_counter(), time.process_time()
    result = qg.fit(known.target, known.family, key=jr.key(seed), seconds=known.seconds)
    wait, work = time.perf_counter() - start[0], time.process_time() - start[1]
    begun = time.perf_counter(), time.process_time()
    verdict = result.diagnose()
    row: dict[str, object] = {
        "case": name,
        "tool": "quietgrad",
        "seed": seed,
        "family": type(result.q).__name__,
        "status": str(result.status),
        "wait": wait,
        "processor": work,
        "programs": result.programs,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
        "elbo": result.elbo,
        "verdict": str(verdict.verdict),
        "verdict_wait": time.perf_counter() - begun[0],
        "verdict_processor": time.process_time() - begun[1],
    }
    if str(verdict.verdict) == "do not trust":
        row["reasons"] = list(verdict.reasons)
    if known.log_evidence is not None:
        row["nats_below"] = known.log_evidence - result.elbo
    if known.mean is None:
        return row
    if name in NORMAL:
        # Of very many coordinates the globals are compared.
        z = np.asarray(result.q.of_globals.sample(jr.key(1), 20_000), float)
    elif "trust" == str(verdict.verdict):
        z = np.concatenate([np.asarray(result.sample(jr.key(n), 500), float) for n in range(10)])
    else:
        z = np.asarray(result.posterior(jr.key(1), 4000).points, float)
    row["mean_error"] = float(np.max(np.abs(z.mean(axis=0) - known.mean) / known.std))
    row["std_ratio_error"] = float(np.max(np.abs(z.std(axis=0) / known.std - 1)))
    return row


def peer(name: str, guide: str) -> list[dict[str, object]]:
    """NumPyro's SVI with one of its guides; as many processor seconds as ours on a large model."""
    if name in LARGE:
        from hierarchy_large import large

        own = [row for row in rows() if row["case"] == name and row["tool"] == "quietgrad"]
        if not own:
            raise SystemExit(f"{name} has no row of ours, whose time its peers get; run it first")
        parts = large(name)
        make, seconds = guide_of(guide, parts.model, parts), max(row["processor"] for row in own)
        return rows_of(name, guide, parts.model, (), make=make, seconds=seconds)
    model, *data = state_space(name)
    return rows_of(name, guide, model, tuple(data), make=guide_of(guide, model), seconds=None)


def references(names: tuple[str, ...] | list[str]) -> None:
    """Long chains for the models that have none, which is the work of minutes each."""
    from zoo import reference

    for name in names:
        model = chain_model(name)
        if name in reference.read() or reference.is_current(model, reference.read(store()).get(name)):
            continue
        made = reference.make(model) if model.dim <= MOST_DENSE else long_chains(model)
        print(f"{name}: {made['how']}, good: {made['good']}, {made.get('seconds')} s", flush=True)
        reference.write(reference.read(store()) | {name: made}, store())


def long_chains(model: Any) -> dict[str, Any]:
    """A reference for hundreds of coordinates: NUTS with a diagonal mass in the non-centred form."""
    import jax
    import jax.numpy as jnp
    import jax.random as jr
    from numpyro.infer import MCMC, NUTS
    from zoo import reference

    begun = time.perf_counter()
    kernel = NUTS(potential_fn=lambda u: -model.view_density(u), target_accept_prob=model.accept)
    chains = MCMC(
        kernel,
        num_warmup=1000,
        num_samples=4000,
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    chains.run(jr.key(0), init_params=0.1 * jr.normal(jr.key(1), (4, model.dim)))
    z = jax.jit(jax.vmap(jax.vmap(model.from_view)))(
        jnp.asarray(chains.get_samples(group_by_chain=True))
    )
    row = reference.words(model) | {"dim": model.dim, "fingerprint": model.fingerprint()}
    found = reference.summary(model, np.asarray(z))
    return row | found | {"seconds": round(time.perf_counter() - begun, 1)}


def table(found: list[dict[str, Any]]) -> list[str]:
    """A line for each case and tool: the worst of the seeds, and the best row of other tools."""
    lines = [
        "| case | tool, family | ELBO | nats below log Z | worst mean, sds | worst sd, share | verdict "
        "| processor s | with verdict | GB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in NAMES:
        own = [row for row in found if row["case"] == name and row["tool"] == "quietgrad"]
        if own:
            verdicts = ", ".join(sorted({row["verdict"] for row in own}))
            families = ", ".join(sorted({row["family"] for row in own}))
            cells = [
                _worst(own, "elbo", min, ".2f"),
                _worst(own, "nats_below", max, ".4f"),
                _worst(own, "mean_error", max, ".3f"),
                _worst(own, "std_ratio_error", max, ".3f"),
                f"{verdicts} ({len(own)} seed{'s' if len(own) > 1 else ''})",
                _worst(own, "processor", max, ".1f"),
                f"{max(row['processor'] + row['verdict_processor'] for row in own):.1f}",
                _worst(own, "gigabytes", max, ".2f"),
            ]
            lines.append(f"| {name} | {families} | {' | '.join(cells)} |")
        for guide in dict.fromkeys([*GUIDES, *LARGE_GUIDES]):
            others = [row for row in found if row["case"] == name and row["tool"] == f"NumPyro {guide}"]
            finite = [row for row in others if np.isfinite(row.get("elbo", np.nan))]
            refused = [row["refused"] for row in others if "refused" in row]
            if refused:
                lines.append(f"| {name} | NumPyro {guide} | refused: {refused[0]} | | | | | | | |")
            if others and not finite and not refused:
                most = max(row["steps"] for row in others)
                lines.append(f"| {name} | NumPyro {guide}, {most:,} steps | not finite | | | | | | | |")
            if finite:
                best = _best(finite)
                how = f"NumPyro {guide}, {best['steps']:,} steps of {best['rate']:g}"
                lines.append(
                    f"| {name} | {how} | {best['elbo']:.2f} | | | | | {best['processor']:.1f} | | |"
                )
    return lines


def _best(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The first row that no longer one is clearly better than: by two standard errors of their ELBOs."""
    most = max(found, key=lambda row: row["elbo"])

    def near(row: dict[str, Any]) -> bool:
        return most["elbo"] - row["elbo"] <= 2 * math.hypot(row["elbo_error"], most["elbo_error"])

    return min(filter(near, found), key=lambda row: row["processor"])


def _worst(found: list[dict[str, Any]], key: str, of: Any, form: str) -> str:
    values = [row[key] for row in found if key in row]
    return format(of(values), form) if values else ""


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main()
