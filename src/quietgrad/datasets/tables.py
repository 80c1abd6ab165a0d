"""The shapes data comes in, how its rows are split, and the check of what was parsed."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

# A check of figures, each given as (expected, found).
Expect = Callable[..., None]


class Table(NamedTuple):
    """Inputs and responses, one row per observation."""

    x: Float[np.ndarray, "rows inputs"]
    y: Float[np.ndarray, " rows"]


class Counts(NamedTuple):
    """Counts by group and site; groups and sites are numbered from zero, offsets are logs."""

    group: Int[np.ndarray, " rows"]
    site: Int[np.ndarray, " rows"]
    offset: Float[np.ndarray, " rows"]
    events: Float[np.ndarray, " rows"]


class Split(NamedTuple):
    """Rows to train on and rows held out."""

    train: Table
    test: Table


def nine_tenths(table: Table) -> Split:
    """Shuffle, train on the first 9 (N // 10) rows and test on the rest."""
    rows = len(table.y)
    return _cut(table, train=9 * (rows // 10), test=rows - 9 * (rows // 10))


def hundreds(table: Table) -> Split:
    """Shuffle, train on the first hundred rows and test on the next hundred."""
    return _cut(table, train=100, test=100)


def standardise_inputs(split: Split) -> Split:
    """Inputs in units of the training rows' standard deviation (ddof 0) from their mean."""
    loc, std = _location_and_scale(split.train.x)
    return Split(*(Table((x - loc) / std, y) for x, y in split))


def standardise(split: Split) -> Split:
    """Inputs and responses both, by the training rows' mean and standard deviation (ddof 0)."""
    loc, std = _location_and_scale(split.train.y)
    return Split(*(Table(x, (y - loc) / std) for x, y in standardise_inputs(split)))


def expect(**figures: tuple[Any, Any]) -> None:
    """Raise a `ValueError` that names each figure whose (expected, found) values differ."""
    wrong = [
        f"expected {name.replace('_', ' ')} {expected}, found {found}"
        for name, (expected, found) in figures.items()
        if expected != found
    ]
    if wrong:
        raise ValueError("; ".join(wrong))


def _cut(table: Table, *, train: int, test: int) -> Split:
    # The legacy generator on purpose: its stream is frozen, and the earlier papers used it.
    order = np.random.RandomState(0).permutation(len(table.y))
    parts = order[:train], order[train : train + test]
    return Split(*(Table(table.x[rows], table.y[rows]) for rows in parts))


def _location_and_scale(values: np.ndarray) -> tuple[Any, Any]:
    std = values.std(axis=0)
    # A column that is constant over the training rows is centred only.
    return values.mean(axis=0), np.where(std > 0, std, 1.0)
