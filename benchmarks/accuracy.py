"""How far fits are from the truth on a zoo of posteriors, and whether they say so.

Run from the repository:
  python benchmarks/accuracy.py reference    reference moments, where there are none yet
  python benchmarks/accuracy.py run          fits that are not stored yet, a process for each model
  python benchmarks/accuracy.py run --cold   times of a first and a second fit, a process for each pair
  python benchmarks/accuracy.py table        what came out, in Markdown; --write: in docs/trust.md too

Fits are in double precision. All commands can be stopped and started again: what is stored is left.
"""

import argparse
import sys
from typing import Any

import jax
import zoo
from pages import TRUST, publish
from zoo import reference
from zoo.judging import classify
from zoo.running import fits
from zoo.store import Store
from zoo.table import TOOLS, page

OURS = ("auto", "full-rank", "mean-field")


def main() -> int:
    """Run the command that was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    making = commands.add_parser("reference", help="make the reference moments that are missing")
    running = commands.add_parser("run", help="fit the models")
    running.add_argument("--tools", nargs="+", default=OURS, choices=TOOLS)
    running.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    running.add_argument("--cold", action="store_true", help="time first fits instead; the first seed")
    tabling = commands.add_parser("table", help="print the stored results")
    tabling.add_argument("--write", action="store_true", help="put them into docs/trust.md as well")
    for command in (making, running, tabling):
        command.add_argument("--models", nargs="+", default=list(zoo.REGISTRY), choices=zoo.REGISTRY)
    for command in (making, running):
        command.add_argument("--again", action="store_true", help="also what is stored")
    for command in (running, tabling):
        command.add_argument("--label", default="fits", help="rows go to results/zoo_LABEL_TOOL.json")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if arguments.command == "reference":
        return make_references(arguments.models, again=arguments.again)
    if arguments.command == "table":
        return print_table(arguments.label, arguments.models, write=arguments.write)
    return run_cold(arguments) if arguments.cold else run(arguments)


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
    """Fit every model with every tool and seed that is not stored; store each row when it is ready."""
    store, faults = Store(arguments.label), 0
    for name in with_reference(arguments.models):
        wanted = [(tool, seed) for tool in arguments.tools for seed in arguments.seeds]
        jobs = [job for job in wanted if arguments.again or not store.has(name, *job)]
        faults += follow(store, name, jobs, cold=False)
    return int(faults > 0)


def run_cold(arguments: argparse.Namespace) -> int:
    """Two fits for each pair in a process of its own, nothing compiled on disk: cold, then warm."""
    store, faults = Store("cold"), 0
    for name in with_reference(arguments.models):
        for tool in arguments.tools:
            jobs = [(tool, arguments.seeds[0]), (tool, arguments.seeds[0] + 1)]
            if arguments.again or not all(store.has(name, *job) for job in jobs):
                faults += follow(store, name, jobs, cold=True)
    return int(faults > 0)


def follow(store: Store, name: str, jobs: list[tuple[str, int]], *, cold: bool) -> int:
    """Store and print the rows of one process as they come; how many are faults."""
    faults, truth = 0, reference.read()[name]
    for row, environment in fits(name, jobs, cold=cold):
        store.put(row, environment)
        faults += row["status"] == "fault"
        print(_words(row, truth), flush=True)
    return faults


def with_reference(names: list[str]) -> list[str]:
    """The models that have a good reference; others are named and left out."""
    references = reference.read()
    for name in names:
        if name not in references or not references[name]["good"]:
            print(f"{name} is left out: it has no good reference yet", flush=True)
    return [name for name in names if name in references and references[name]["good"]]


def print_table(label: str, names: list[str], *, write: bool) -> int:
    """Print what was run, the summary and the models."""
    lines = page(Store(label), Store("cold"), names, reference.read())
    print("\n".join(lines))
    if write:
        publish("zoo", lines, TRUST)
    return 0


def _words(row: dict[str, Any], truth: dict[str, Any]) -> str:
    off = "no truth" if row["mean_error"] is None else f"{row['mean_error']:.3g} sd"
    elbo = "no ELBO" if row["elbo"] is None else f"ELBO {row['elbo']:.2f}"
    scales = "" if row["mean_error"] is None else (
        f", sds {row['least_std_ratio']:.2f} to {row['most_std_ratio']:.2f}"
    )  # fmt: skip
    return (
        f"{row['model']}, {row['tool']}, seed {row['seed']}: {classify(row, truth)} ({off}{scales}), "
        f"{elbo}, {row['status']}, {row['verdict']}, {row['seconds']} s, "
        f"verdict {row.get('verdict_seconds')} s"
    )


if __name__ == "__main__":
    sys.exit(main())
