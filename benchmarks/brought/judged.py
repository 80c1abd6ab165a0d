"""Stored rows held against references: the errors that the old zoo's classes are made from."""

from typing import Any

import numpy as np
from zoo.judging import CORRECTED, errors, fine

Row = dict[str, Any]
NOTHING = {"mean_error": None, "least_std_ratio": None, "most_std_ratio": None}


def judge(row: Row, truth: Row | None) -> Row:
    """The row with its errors; without a good reference there are none."""
    known = truth is not None and truth["good"]
    if not known or row.get("answer") is None:
        return row | NOTHING | {"corrected_error": None}
    assert truth is not None
    found = row | _errors(row["answer"], truth) | {"corrected_error": None}
    if row["verdict"] == CORRECTED:
        after = _errors(row["corrected_answer"], truth)
        found |= {f"corrected_{name.removeprefix('mean_')}": value for name, value in after.items()}
    return found


def _errors(answer: dict[str, list[float]], truth: Row) -> Row:
    mean, std = (np.asarray(answer[name])[truth["index"]] for name in ("mean", "std"))
    with np.errstate(all="ignore"):
        off = np.abs(mean - truth["mean"]) / np.asarray(truth["std"])
    worst = truth["names"][int(np.argmax(np.where(np.isfinite(off), off, np.inf)))]
    return errors(truth, mean, std) | {"worst": worst}


def taken(row: Row) -> Row:
    """The row with the errors of what its user is told to take: q, or the corrected draws."""
    if row["verdict"] != CORRECTED or row["corrected_error"] is None:
        return row
    names = ("least_std_ratio", "most_std_ratio")
    return row | {"mean_error": row["corrected_error"]} | {n: row[f"corrected_{n}"] for n in names}


def right(row: Row) -> bool:
    """Whether means and scales of what its user takes are all right."""
    return fine(taken(row))
