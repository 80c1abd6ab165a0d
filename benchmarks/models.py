"""Models as people bring them (NumPyro, PyMC): fits, verdicts and seconds, beside NUTS and others.

Run from the repository:
  python benchmarks/models.py reference    reference moments, where there are none yet
  python benchmarks/models.py run          fits that are not stored yet, a fresh process for each
  python benchmarks/models.py table        what came out, in Markdown; --write: in docs/trust.md too

All commands can be stopped and started again: what is stored is left, `--again` makes it anew.
PyMC's JAX back end turns on double precision, so PyMC's models run in it under either label.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import brought
from brought.judged import judge
from brought.reference import STORE
from brought.table import page
from brought.tools import TOOLS, refuses
from installed import compile_bytecode
from pages import TRUST, publish
from zoo.judging import DO_NOT_TRUST, classify
from zoo.reference import read, write
from zoo.running import printed
from zoo.store import FOLDER, Row, Store, locked

from quietgrad._util.environment import current_environment

PRECISIONS = {"float32": "0", "float64": "1"}
# Seconds of the wall after which a process is ended.
LIMIT = 1800.0


def main() -> int:
    """Run the command that was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    making = commands.add_parser("reference", help="make the reference moments that are missing")
    running = commands.add_parser("run", help="fit the models")
    running.add_argument("--tools", nargs="+", default=["auto", "nuts"], choices=TOOLS)
    running.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    tabling = commands.add_parser("table", help="print the stored results")
    tabling.add_argument("--write", action="store_true", help="put them into docs/trust.md as well")
    for command in (making, running, tabling):
        command.add_argument(
            "--models", nargs="+", default=list(brought.REGISTRY), choices=brought.REGISTRY
        )
    for command in (making, running):
        command.add_argument("--again", action="store_true", help="also what is stored")
    running.add_argument("--precisions", nargs="+", default=list(PRECISIONS), choices=PRECISIONS)
    for command in (running, tabling):
        command.add_argument(
            "--label", default="", help="rows go to results/brought_LABELfloat32_TOOL.json"
        )
    given = parser.parse_args()
    if given.command == "reference":
        return make_references(given.models, again=given.again)
    if given.command == "run":
        return run(given)
    stores = {precision: store(precision, given.label) for precision in PRECISIONS}
    lines = page(stores, given.models, read(STORE))
    print("\n".join(lines))
    if given.write:
        publish("brought", lines, TRUST)
    return 0


def store(precision: str, label: str = "") -> Store:
    """The rows of one precision."""
    return Store(f"{label}{precision}", FOLDER, zoo="brought", models=brought.REGISTRY)


def make_references(names: list[str], *, again: bool) -> int:
    """Make and store the references of these models, a process for each; those at hand are left."""
    bad = 0
    for name in names:
        known = read(STORE).get(name)
        if not again and known is not None and (known["good"] or known.get("final")):
            continue
        command = [sys.executable, "-m", "brought.reference", name]
        for row in printed(command, _environment("float64"), rows=1, limit=2 * LIMIT):
            if isinstance(row, str):
                print(f"{name}: no reference, {row}", flush=True)
                bad += 1
                continue
            row.pop("model")
            put(name, row)
            bad += not row["good"]
            worst = (
                f", R-hat {max(row['r_hat']):.4f}, size {min(row['size']):.0f}" if "r_hat" in row else ""
            )
            said = "good" if row["good"] else "NOT GOOD"
            seconds = row.get("processor_seconds", 0)
            print(
                f"{name}: {said}, {row['how']}{worst}, divergent {row.get('divergent', 0)}, "
                f"{seconds} processor s",
                flush=True,
            )
    return int(bad > 0)


def put(name: str, row: dict[str, Any]) -> None:
    """Store the reference of one model among the others; several processes may do so at once."""
    with locked(STORE.parent):
        stored = read(STORE) | {name: row}
        write({name: stored[name] for name in brought.REGISTRY if name in stored}, STORE)


def run(given: argparse.Namespace) -> int:
    """Fit every model with every tool, seed and precision that is not stored, and store its row."""
    faults = 0
    compile_bytecode()
    for seed in given.seeds:
        for precision in given.precisions:
            rows = store(precision, given.label)
            for name in given.models:
                model = brought.load(name)
                for tool in given.tools:
                    if refuses(tool, model) is None and (given.again or not rows.has(name, tool, seed)):
                        faults += fit(rows, name, tool, seed, precision)
    return int(faults > 0)


def fit(
    rows: Store,
    name: str,
    tool: str,
    seed: int,
    precision: str,
    run: Callable[..., Iterator[Row | str]] = printed,
) -> int:
    """One fit in a process of its own: its row is stored and printed; whether it is a fault."""
    command = [sys.executable, "-m", "brought.cell", name, tool, str(seed)]
    # Of a process that dies, the environment is that of this one.
    place, row = current_environment() | {"precision": precision}, None
    with tempfile.TemporaryDirectory() as empty:
        began = time.time()
        environment = _environment(precision, empty) | {"CELL_STARTED": repr(began)}
        for line in run(command, environment, rows=1, limit=LIMIT):
            if isinstance(line, str):
                row = {"model": name, "tool": tool, "seed": seed, "status": "fault", "hint": line}
                row |= {
                    "verdict": DO_NOT_TRUST,
                    "answer": None,
                    "seconds": round(time.time() - began, 1),
                }
            elif "model" in line:
                row = line
            else:
                place = line
    assert row is not None
    rows.put(row, place)
    print(words(judge(row, read(STORE).get(name)), precision), flush=True)
    return int(row["status"] == "fault")


def words(row: dict[str, Any], precision: str) -> str:
    """One line on a judged row."""
    known = row["mean_error"] is not None
    off = f"{row['mean_error']:.3g} sd ({row['worst']})" if known else "no truth"
    label = classify(row, {"must_warn": None}) if known else "?"
    scales = f", sds {row['least_std_ratio']:.2f} to {row['most_std_ratio']:.2f}" if known else ""
    family = f", {row['fitted']}" if "fitted" in row else ""
    return (
        f"{row['model']}, {row['tool']}, {precision}, seed {row['seed']}: {label} {off}{scales}, "
        f"{row['status']}, {row['verdict']}{family}, {row.get('processor_seconds')} processor s, "
        f"{row.get('programs')} programs{', ' + row['hint'] if row['status'] == 'fault' else ''}"
    )


def _environment(precision: str, compiled: str | None = None) -> dict[str, str]:
    """What a process is told: its precision, and an empty folder for what is compiled."""
    found = os.environ | {"JAX_ENABLE_X64": PRECISIONS[precision], "TQDM_DISABLE": "1"}
    if compiled is not None:
        # Fits keep programs in the user's cache folder, and PyTensor keeps its own.
        found |= {"XDG_CACHE_HOME": compiled, "PYTENSOR_FLAGS": f"base_compiledir={compiled}"}
    return found


if __name__ == "__main__":
    sys.exit(main())
