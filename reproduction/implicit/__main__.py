"""`python -m reproduction.implicit run|page`: the study in pieces that are kept, and its page.

A cell is one JSON file of rows, named by what it is about. A cell that is there is not computed again,
so that an interrupted run goes on. Seconds are processor seconds, so that other work on the machine does
not change what a method gets done.
"""

import argparse
import functools
import itertools
import json
import sys
import time
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# Fits of energies by equal seconds, and the same for longer.
ENERGIES = ("energies", "longer")


def main(arguments: list[str] | None = None) -> int:
    """Parse, and run or make the page."""
    parser = argparse.ArgumentParser(prog="python -m reproduction.implicit")
    parser.add_argument("command", choices=["run", "page"])
    parser.add_argument("--spec", type=Path, default=HERE / "full.toml")
    parser.add_argument("--cells", type=Path, default=HERE / "cells")
    parser.add_argument("--only", default="", help="cells whose name contains this")
    parser.add_argument("--share", default="1/1", help="1/2 and 2/2: halves for two processes")
    given = parser.parse_args(arguments)
    if given.command == "page":
        from .page import write

        write(given.cells, HERE)
        return 0
    spec = tomllib.loads(given.spec.read_text())
    return run(spec, given.cells, given.only, given.share)


def in_share(names: Iterable[str], share: str) -> list[str]:
    """The names of this share: every n-th problem of a part, with its trials."""
    number, count = map(int, share.split("/"))
    keys = {name: tuple(name.removeprefix("tuning-").split("-")[:2]) for name in names}
    order = list(dict.fromkeys(keys.values()))
    return [name for name, key in keys.items() if order.index(key) % count == number - 1]


def run(spec: dict[str, Any], cells: Path, only: str = "", share: str = "1/1") -> int:
    """Every cell that is not there yet; what fails is told and makes the exit code 1."""
    from quietgrad._util.environment import commit as checkout
    from quietgrad._util.memory import crowded, forget_programs

    cells.mkdir(parents=True, exist_ok=True)
    there = checkout()
    commit = f"{(there['commit'] or 'none')[:9]}{'+' if there['dirty'] else ''}"
    failed = 0
    planned = plan(spec, cells)
    for name in in_share(planned, share):
        compute, file = planned[name], cells / f"{name}.json"
        if only not in name or file.exists():
            continue
        if crowded():
            forget_programs()
        began = time.process_time()
        try:
            rows = compute()
        except Exception as error:  # noqa: BLE001  one cell's failure is no reason to lose the others
            failed += 1
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            continue
        took = time.process_time() - began
        made = {"commit": commit, "cell_seconds": round(took, 1)}
        file.write_text(json.dumps([row | made for row in rows], indent=0) + "\n")
        print(f"{name}: {took:.0f} processor seconds", flush=True)
    return 1 if failed else 0


def plan(spec: dict[str, Any], cells: Path) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    """The cells of a spec by name, in the order in which they are computed."""
    from .methods import METHODS

    cache = cells / "cache"
    made: dict[str, Callable[[], list[dict[str, Any]]]] = {}

    def scores(name: str, seed: int) -> list[dict[str, Any]]:
        from .scores_cell import rows

        return rows(name, start(name, cache), spec["scores"], seed)

    def distances(name: str, method: str, seed: int) -> list[dict[str, Any]]:
        from .distances_cell import rows

        tried = kept(f"tuning-distances-{name}-{method}")
        return rows(name, method, start(name, cache), spec["distances"], seed, tried, cache)

    def tuning_distances(name: str, method: str) -> list[dict[str, Any]]:
        from .distances_cell import tuning

        return tuning(name, method, start(name, cache), spec["distances"], cache)

    def floor(name: str) -> list[dict[str, Any]]:
        from .distances_cell import floor as between_halves

        return [between_halves(name, cache)]

    def energies(part: str, name: str, method: str, seed: int) -> list[dict[str, Any]]:
        from .energies_cell import rows

        return rows(name, method, spec[part], seed, kept(f"tuning-{part}-{name}-{method}"))

    def tuning_energies(part: str, name: str, method: str) -> list[dict[str, Any]]:
        from .energies_cell import tuning

        return tuning(name, method, spec[part])

    def kept(name: str) -> list[dict[str, Any]]:
        file = cells / f"{name}.json"
        return json.loads(file.read_text()) if file.exists() else []

    def gradients(name: str, times: int, seed: int) -> list[dict[str, Any]]:
        from .gradients_cell import rows

        return rows(name, times, spec["gradients"], seed)

    # Rates and numbers of chains are chosen for each method and problem on seeds of their own.
    for name in spec["distances"]["targets"] if "tuning" in spec["distances"] else []:
        for method in (m for m in spec["distances"]["methods"] if m in METHODS):
            cell = functools.partial(tuning_distances, name, method)
            made[f"tuning-distances-{name}-{method}"] = cell
    parts = [part for part in ENERGIES if part in spec]
    for part in (part for part in parts if "tuning" in spec[part]):
        for name, method in itertools.product(spec[part]["problems"], spec[part]["methods"]):
            cell = functools.partial(tuning_energies, part, name, method)
            made[f"tuning-{part}-{name}-{method}"] = cell
    # One seed after the other: a run that is stopped has whole comparisons.
    for seed in range(spec["seeds"]):
        for name in spec["scores"]["targets"] if seed < spec["scores"].get("seeds", seed + 1) else []:
            made[f"scores-{name}-{seed}"] = functools.partial(scores, name, seed)
        for name in spec["distances"]["targets"]:
            made[f"distances-{name}-reference"] = functools.partial(floor, name)
            for method in spec["distances"]["methods"]:
                cell = functools.partial(distances, name, method, seed)
                made[f"distances-{name}-{method}-{seed}"] = cell
        for name in spec["gradients"]["problems"]:
            for times in spec["gradients"]["chains_over_dim"]:
                cell = functools.partial(gradients, name, times, seed)
                made[f"gradients-{name}-{times}d-{seed}"] = cell
        for part in parts:
            for name, method in itertools.product(spec[part]["problems"], spec[part]["methods"]):
                cell = functools.partial(energies, part, name, method, seed)
                made[f"{part}-{name}-{method}-{seed}"] = cell
    return made


def start(name: str, cache: Path) -> Any:
    """The full-rank Gaussian that all semi-implicit methods start from; kept in `cache`."""
    import jax.numpy as jnp
    import jax.random as jr
    import numpy as np

    import quietgrad as qg

    from .targets import target_of

    # The waveforms have one start, whatever the dimension of eps.
    name = name.rstrip("-0123456789")
    file = cache / f"start-{name}.npz"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        q = qg.fit(target_of(name)[1], "full-rank", key=jr.key(0)).q
        np.savez(file, loc=q.loc, packed=q.packed)
    stored = np.load(file)
    return qg.FullRank(loc=jnp.asarray(stored["loc"]), packed=jnp.asarray(stored["packed"]))


if __name__ == "__main__":
    sys.exit(main())
