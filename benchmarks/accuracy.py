"""How far fits are from the truth on a zoo of posteriors, and whether they say so.

Run from the repository:
  python benchmarks/accuracy.py reference    reference moments, where there are none yet
  python benchmarks/accuracy.py run          fits, each model and tool in a process of its own
  python benchmarks/accuracy.py table        what came out, in Markdown

Fits are in double precision. The first seed of a process is the first fit ("cold"), others are warm.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import zoo
from zoo import reference
from zoo.judging import DO_NOT_TRUST, classify

RESULTS = Path(__file__).parent / "results" / "accuracy.json"
OURS = ("mean-field", "low-rank", "full-rank", "auto", "bam")
PEERS = ("numpyro-svi", "blackjax-pathfinder", "pymc-advi")
LIMIT = 900.0


def main() -> int:
    """Run the command that was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    making = commands.add_parser("reference", help="make the reference moments that are missing")
    making.add_argument("--again", action="store_true", help="also those that are there")
    running = commands.add_parser("run", help="fit the models")
    running.add_argument("--families", nargs="*", default=OURS[:1] + OURS[2:], choices=OURS)
    running.add_argument("--peers", nargs="*", help=f"other tools: all, or some of {', '.join(PEERS)}")
    running.add_argument("--seeds", type=int, default=3)
    running.add_argument("--new", action="store_true", help="only what is not stored yet")
    tabling = commands.add_parser("table", help="print the stored results")
    for command in (making, running, tabling):
        command.add_argument("--models", nargs="+", default=list(zoo.REGISTRY), choices=zoo.REGISTRY)
    for command in (running, tabling):
        command.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if arguments.command == "reference":
        return make_references(arguments.models, again=arguments.again)
    if arguments.command == "table":
        return print_table(arguments.results, arguments.models)
    return run(arguments)


def make_references(names: list[str], *, again: bool) -> int:
    """Make and store the references of these models, one by one; those at hand are left."""
    bad = 0
    for name in names:
        model, row = zoo.load(name), reference.read().get(name)
        if not again and row is not None and reference.is_current(model, row):
            put(name, row | reference.words(model))
            continue
        row = reference.make(model)
        put(name, row)
        bad += not row["good"]
        worst = f", R-hat {max(row['r_hat']):.4f}, size {min(row['size']):.0f}" if "r_hat" in row else ""
        verdict = "good" if row["good"] else "NOT CONVERGED"
        print(f"{name}: {verdict}, {row['how']}{worst}, {row.get('seconds', 0)} s", flush=True)
        jax.clear_caches()
    return int(bad > 0)


def put(name: str, row: dict[str, Any]) -> None:
    """Store the reference of one model among the others, in the order of the zoo."""
    stored = reference.read() | {name: row}
    reference.write({name: stored[name] for name in zoo.REGISTRY if name in stored})


def run(arguments: argparse.Namespace) -> int:
    """Fit every model with every tool, and store after each pair."""
    from zoo.fitting import missing

    faults, references = 0, reference.read()
    # The option without names means all of them.
    peers = [] if arguments.peers is None else arguments.peers or PEERS
    unknown = sorted(set(peers) - set(PEERS))
    if unknown:
        raise SystemExit(f"unknown peers {', '.join(unknown)}; there are {', '.join(PEERS)}")
    for tool in [*arguments.families, *peers]:
        reason = missing(tool)
        if reason is not None:
            print(f"{tool} is left out: {reason}", flush=True)
            continue
        for name in arguments.models:
            if name not in references:
                print(f"{name} is left out: it has no reference yet", flush=True)
                continue
            stored = read(arguments.results)
            if arguments.new and any((row["model"], row["tool"]) == (name, tool) for row in stored):
                continue
            rows, fault = in_own_process(name, tool, arguments.seeds)
            if fault is not None:
                faults += 1
                rows += [failed(name, tool, seed, fault) for seed in range(len(rows), arguments.seeds)]
            others = [
                row for row in read(arguments.results) if (row["model"], row["tool"]) != (name, tool)
            ]
            write(arguments.results, others + rows)
            for row in rows:
                print(_words(row, references[name]), flush=True)
            if fault is not None:
                print(f"{name}, {tool}: FAULT: {fault}", flush=True)
    return int(faults > 0)


def in_own_process(name: str, tool: str, seeds: int) -> tuple[list[dict[str, Any]], str | None]:
    """The rows of a model and a tool from a fresh process, and what went wrong, if anything did."""
    command = [sys.executable, "-m", "zoo.cell", name, tool, str(seeds)]
    began = time.perf_counter()
    environment = os.environ | {"JAX_ENABLE_X64": "1", "TQDM_DISABLE": "1"}
    try:
        ended = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=LIMIT,
            env=environment,
        )  # fmt: skip
        output, fault = ended.stdout, ended.stderr.strip()[-400:] if ended.returncode else None
    except subprocess.TimeoutExpired as ended:
        output = (ended.stdout or b"").decode()
        fault = f"not ready after {time.perf_counter() - began:.0f} s"
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return rows, fault


def failed(name: str, tool: str, seed: int, fault: str) -> dict[str, Any]:
    """The row of a fit that gave no answer: wrong as can be, but it said so."""
    row = {"model": name, "tool": tool, "seed": seed, "cold": seed == 0, "status": "fault"}
    row |= {"hint": fault, "elbo": None, "seconds": None, "verdict": DO_NOT_TRUST}
    nothing = {"mean_error": None, "least_std_ratio": None, "most_std_ratio": None}
    return row | nothing | {"judged_by": "exception", "corrected_error": None}


def read(path: Path) -> list[dict[str, Any]]:
    """The stored rows."""
    return json.loads(path.read_text()) if path.exists() else []


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Store rows, one a line."""
    order = {name: number for number, name in enumerate(zoo.REGISTRY)}
    rows = sorted(rows, key=lambda row: (order[row["model"]], row["tool"], row["seed"]))
    part = path.with_suffix(".part")
    part.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    os.replace(part, path)


def print_table(path: Path, names: list[str]) -> int:
    """Print the summary and the models."""
    from zoo.table import by_model, summary

    references = {name: row for name, row in reference.read().items() if name in names}
    rows = [row for row in read(path) if row["model"] in references]
    print("\n".join([*summary(rows, references), "", *by_model(rows, references)]))
    return 0


def _words(row: dict[str, Any], truth: dict[str, Any]) -> str:
    off = "no truth" if row["mean_error"] is None else f"{row['mean_error']:.3g} sd"
    elbo = "no ELBO" if row["elbo"] is None else f"ELBO {row['elbo']:.2f}"
    return (
        f"{row['model']}, {row['tool']}, seed {row['seed']}: {classify(row, truth)} ({off}), {elbo}, "
        f"{row['status']}, {row['verdict']}, {row['seconds']} s"
    )


if __name__ == "__main__":
    sys.exit(main())
