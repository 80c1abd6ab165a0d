"""Copy the finished cells of a study into this folder, with the manifest that plans them.

Run from the repository: python reproduction/collect.py RESULTS
RESULTS is where `quietgrad study reproduction/trajectories.toml --out RESULTS` puts its cells; it may
still be running. Cells are thinned to what a figure can show, and keep their environment and commit.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import numpy as np

from quietgrad.study.records import Cell, Record
from quietgrad.study.store import Store, studies

HERE = Path(__file__).parent
# Evaluations that a cell keeps, at most.
MOST = 130


def thinned(record: Record) -> Record:
    """The record with every k-th evaluation and the last; those with a variance or lppd stay."""
    length = len(record.column("step"))
    every = -(-length // MOST)
    if every < 2:
        return record
    keep = np.zeros(length, bool)
    keep[::every] = keep[-1:] = True
    keep |= np.isfinite(record.column("variance_ratio")) | np.isfinite(record.column("lppd"))
    columns = {name: np.asarray(column)[keep] for name, column in record.columns.items()}
    return dataclasses.replace(record, columns=columns)


def collect(source: Path, target: Path) -> int:
    """Copy what is done or was skipped; how many cells that were."""
    results, here = Store(source), Store(target).create()
    done = [record for record in results.read_all() if record.status in ("done", "skipped")]
    for record in done:
        here.write(thinned(record))
    theirs = results.manifest()
    mine = here.manifest() if (target / "manifest.json").exists() else {}
    every = {each["name"]: each for each in studies(mine)}
    for each in studies(theirs):
        # The command without the directory of that machine.
        command = f"quietgrad study reproduction/{each['name']}.toml --out reproduction"
        every[each["name"]] = {**each, "command": command}
    first, *further = every.values()
    cells = {Cell(**entry["cell"]).name: entry for entry in [*mine.get("cells", []), *theirs["cells"]]}
    document = {
        **{key: theirs[key] for key in ("format", "created", "updated")},
        **({"created": mine["created"]} if mine else {}),
        **first,
        "further": further,
        "cells": list(cells.values()),
    }
    text = json.dumps(document, indent=1)
    (target / "manifest.json").write_text(text + "\n", encoding="utf-8")
    return len(done)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    print(f"{collect(parser.parse_args().results, HERE)} cells copied")
