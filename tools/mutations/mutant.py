"""One seeded bug: where it is put, what it breaks, and the tests that should see it."""

from typing import NamedTuple


class Mutant(NamedTuple):
    """`old` stands exactly once in `file` (below src/quietgrad) and is replaced by `new`.

    `tests` is a selection for pytest that takes seconds. `explained` says why a survivor is no gap in
    the tests; it is empty for all that must be killed.
    """

    name: str
    file: str
    old: str
    new: str
    breaks: str
    tests: str
    explained: str = ""
