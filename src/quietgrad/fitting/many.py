"""`fit_many`: one model, many data sets. What the first fit compiled serves all of them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import jax
import numpy as np
from jaxtyping import Array, Key, PyTree

from .._util.checks import check_key, described
from ..families import AbstractFamily
from ..results import FitResult
from ..status import Status
from ..targets import Target
from . import fit
from .restarts import numbered

NOT_BEGUN = {
    "interrupted": "not begun: the user stopped the fits before this one",
    "time": "not begun: the time limit was reached; give more seconds",
}
COLUMNS = ("elbo", "elbo_error", "status", "steps", "seconds", "programs", "hint")


class FitMany(Sequence[FitResult | None]):
    """The results in the order of the data sets; None where a fit raised an error or was not begun.

    `errors` has a sentence for each of those. `print` shows a table, and `table()` returns it.
    """

    def __init__(self, results: Sequence[FitResult | None], errors: Mapping[int, str]):
        self._results, self.errors = tuple(results), dict(errors)

    @overload
    def __getitem__(self, place: int) -> FitResult | None: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[FitResult | None, ...]: ...
    def __getitem__(self, place: int | slice) -> Any:
        """One result, or several."""
        return self._results[place]

    def __len__(self) -> int:
        return len(self._results)

    def table(self) -> dict[str, np.ndarray]:
        """Columns with an entry for each data set: ELBO, error, status, steps, wall seconds, hint."""
        rows = [self._row(number, result) for number, result in enumerate(self._results)]
        return {name: np.asarray([row[place] for row in rows]) for place, name in enumerate(COLUMNS)}

    def _row(self, number: int, result: FitResult | None) -> tuple[Any, ...]:
        if result is None:
            return np.nan, np.nan, "error", 0, 0.0, 0, self.errors[number]
        clock, error = result.clock["total"], result.elbo_error
        status, hint = str(result.status), result.hint
        return result.elbo, error, status, result.steps, clock, result.programs, hint

    def __str__(self) -> str:
        lines = [f"{'':>5}  {'ELBO':>12}  {'error':>8}  {'status':<12}  {'steps':>8}  {'seconds':>8}"]
        table = self.table()
        for number in range(len(self)):
            elbo, error, status, steps, seconds = (table[name][number] for name in COLUMNS[:5])
            line = (
                f"{number:>5}  {elbo:>12.2f}  {error:>8.2f}  {status:<12}  {steps:>8,}  {seconds:>8.2f}"
            )
            good = status == str(Status.CONVERGED)
            lines.append(line if good else f"{line}  {table['hint'][number]}")
        return "\n".join(lines)


def fit_many(
    targets: Target | Sequence[Target],
    family: AbstractFamily | str = "mean-field",
    *,
    data: PyTree = None,
    seconds: float | int | None = None,
    key: Key[Array, ""],
    **settings: Any,
) -> FitMany:
    """Fit one model to many data sets, one after the other.

    What the first fit compiled serves the others. A fit that fails keeps its place and does not stop the
    others; Ctrl-C stops them all. An error that all of them meet is raised.

    Args:
        targets: a list of targets of the same code and shapes; what differs in either is compiled again,
            or one target, with `data`.
        family: as in `fit`.
        data: for one target, its data sets along a new leading axis of every array.
        seconds: limit of the whole call; None is no limit.
        key: a random key. Fit number i has a key of its own, made from it; the first has `key` itself.
        settings: further arguments of `fit`, the same for all.

    Returns:
        The results in the order of the data sets, with None and a sentence in `errors` where there is
        none.
    """
    check_key(key)
    count, target_of = _targets(targets, data)
    results: list[FitResult | None] = []
    errors: dict[int, str] = {}
    raised: list[Exception] = []
    ends, reason = time.monotonic() + (np.inf if seconds is None else float(seconds)), ""
    for number in range(count):
        left = ends - time.monotonic()
        reason = reason or ("time" if left <= 0 else "")
        result = None
        if reason:
            errors[number] = NOT_BEGUN[reason]
        else:
            try:
                limit = None if seconds is None else left
                own = key if number == 0 else numbered(key, number)
                result = fit(target_of(number), family, seconds=limit, key=own, **settings)
            except (ValueError, FloatingPointError, ArithmeticError, RuntimeError) as error:
                errors[number] = f"{type(error).__name__}: {error}"
                raised.append(error)
        if result is not None and result.status is Status.INTERRUPTED:
            reason = "interrupted"
        results.append(result)
    if len(raised) == count:
        # Not one data set is to blame, but the call.
        raise raised[0]
    return FitMany(results, errors)


def _targets(targets: Any, data: PyTree) -> tuple[int, Any]:
    """How many data sets there are, and the function that makes the target of one."""
    if isinstance(targets, Target):
        if data is None:
            raise ValueError(
                "one target was given without data; give data=..., with the data sets along a new "
                "leading axis, or a list of targets"
            )
        lengths = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(data)}
        if len(lengths) != 1 or () in lengths or (0,) in lengths:
            raise ValueError(
                "every array in data needs the same, non-empty leading axis, the number of the data "
                f"set; got {sorted(lengths)}"
            )
        return lengths.pop()[0], lambda i: targets.with_data(jax.tree.map(lambda x: x[i], data))
    if data is not None:
        raise ValueError("data goes with one target; a list of targets brings its own")
    made = list(targets) if isinstance(targets, Sequence | Iterator) else [targets]
    wrong = [(i, each) for i, each in enumerate(made) if not isinstance(each, Target)]
    if wrong or not made:
        given = f"{described(wrong[0][1])} at place {wrong[0][0]}" if wrong else "an empty list"
        raise TypeError(f"fit_many takes a Target with data, or a list of Targets; got {given}")
    return len(made), made.__getitem__
