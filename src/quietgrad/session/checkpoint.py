"""The checkpoint of a fit: what identifies it, and what the next process has of it too."""

import os
from typing import Any

import equinox as eqx
from jaxtyping import Array, Key

from ..estimators import AbstractEstimator
from .checkpoints import Book, NoBook, identity, open_book
from .problem import Problem


def book_of(
    checkpoint: str | os.PathLike[str] | None,
    problem: Problem,
    method: Any,
    seconds: float | None,
    *,
    key: Key[Array, ""],
) -> Book | NoBook:
    """The checkpoint of a fit; with its result if it is done and more seconds would not help."""
    if checkpoint is None:
        return NoBook()
    if problem.feed is not None:
        raise ValueError(
            "a checkpoint is for data in memory, and these stay on disk; leave checkpoint out, or "
            "load them"
        )
    target, q = problem.target, problem.q
    settings = {"batch_size": problem.batch_size, "any_family": problem.any_family}
    if problem.start_given:
        settings["start_given"] = True
    templates = {"family": q, "trained": eqx.filter(q, eqx.is_inexact_array)}
    estimator = getattr(method, "estimator", None)
    if isinstance(estimator, AbstractEstimator):
        templates["estimator"] = estimator
    book = open_book(checkpoint, identity(target, q, method, key=key, **settings), templates)
    if book.record is not None and book.record["out_of_time"]:
        if seconds is None or seconds > book.record["clock"]["total"]:
            book.result = None
    return book
