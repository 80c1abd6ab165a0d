"""Data files of a user: CSV, NPZ and JSON as named columns, arrays and numbers."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

DELIMITERS = ",;\t"


def read_table(path: Path) -> dict[str, Any]:
    """What the file holds, by name. Columns of text stay text: they are refused where they are used."""
    readers: dict[str, Callable[[Path], dict[str, Any]]] = {
        ".csv": _read_csv,
        ".tsv": _read_csv,
        ".npz": _read_npz,
        ".json": _read_json,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path.name}: data files are {', '.join(readers)}; got {path.suffix!r}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no data file {path}")
    return reader(path)


def _read_csv(path: Path) -> dict[str, Any]:
    """Columns by the names in the first line; the delimiter is the one that this line has most of."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        first = file.readline()
        file.seek(0)
        delimiter = max(DELIMITERS, key=first.count)
        header, *rows = [row for row in csv.reader(file, delimiter=delimiter) if row] or [[]]
    names = [name.strip() for name in header]
    if not rows or len(set(names)) < len(names):
        raise ValueError(f"{path.name} needs a first line of different names, and rows below it")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(names):
            raise ValueError(f"{path.name}, row {number} has {len(row)} values for {len(names)} columns")
    return {name: _column([row[i].strip() for row in rows]) for i, name in enumerate(names)}


def _column(values: list[str]) -> np.ndarray:
    for kind in (int, float):
        try:
            # An empty cell is a number that is missing, unless the column is text anyway.
            return np.asarray([kind(value) if value else kind("nan") for value in values])
        except ValueError:
            continue
    return np.asarray(values)


def _read_npz(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as file:
        return {name: _number(file[name]) for name in file.files}


def _read_json(path: Path) -> dict[str, Any]:
    """An object of arrays and numbers, or a list of records."""
    found = json.loads(path.read_text())
    if isinstance(found, list) and found and all(isinstance(record, dict) for record in found):
        if len({frozenset(record) for record in found}) > 1:
            raise ValueError(f"{path.name}: all records need the same names")
        found = {name: [record[name] for record in found] for name in found[0]}
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} must hold an object of arrays and numbers, or a list of records")
    return {name: _number(np.asarray(value)) for name, value in found.items()}


def _number(array: np.ndarray) -> Any:
    """Numbers without axes are plain Python numbers, which a model may use as lengths."""
    return array.item() if array.ndim == 0 else array
