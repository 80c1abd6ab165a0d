"""One seeded bug: where it is put, what it breaks, and the tests that should see it."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """`old` stands exactly once in the source of `symbol` and is replaced by `new`.

    `symbol` is the qualified name of a class, function, method or constant (`Ridge.apply`, `SHARE`),
    wherever in the sources it is. `old` is compared by Python's tokens, so that neither a move nor a new
    line break loses it. `tests` is a selection for pytest that takes seconds. `explained` says why a
    survivor is no gap in the tests; it is empty for all that must be killed.
    """

    name: str
    symbol: str
    old: str
    new: str
    breaks: str
    tests: str
    explained: str = ""
