"""How far the fits from several starts agree."""

import dataclasses
from collections import Counter
from typing import NamedTuple

from .diagnosis import Restart

# What is said of starts that were not fitted to the end: they were on their way to the answer of another
# one, they were clearly lower, or there was no time.
SAME, BEHIND, NOT_RUN = "same", "behind", "not run"


class Start(NamedTuple):
    """Where one start led: its ELBO with error, and how far its means are from the best answer's.

    `distance` is that of the coordinate furthest away, in sds of the wider of the two. `status` says how
    its fit ended, or why it was not fitted to the end: "same", "behind" or "not run". `answer` is the
    number of the start whose answer it has.
    """

    elbo: float
    error: float
    distance: float
    status: str
    answer: int


@dataclasses.dataclass(frozen=True)
class Agreement:
    """All starts in order, which one is `best`, and what the others ended with."""

    starts: tuple[Start, ...]
    best: int
    others: tuple[Restart, ...] = ()

    def __len__(self) -> int:
        return len(self.starts)

    def __str__(self) -> str:
        run = [start for start in self.starts if start.status != NOT_RUN]
        counts = Counter(start.answer for start in run)
        missing = len(self.starts) - len(run)
        left = f" ({missing} more were not begun)" if missing else ""
        answers = "the same answer" if len(counts) == 1 else f"{len(counts)} different answers"
        text = f"{len(run)} starts{left} led to {answers}"
        here = [start for start in run if start.answer == self.best]
        if len(here) > 1:
            apart = max(start.distance for start in here)
            text += f": {len(here)} to this one, their means at most {apart:.2g} sds apart"
        for number, count in counts.most_common():
            other = self.starts[number]
            if number != self.best:
                below = self.starts[self.best].elbo - other.elbo
                text += f"; {count} to one {below:.2f} nats lower and {other.distance:.2g} sds away"
                text += " (not finished)" if other.status == BEHIND else ""
        return f"{text}."
