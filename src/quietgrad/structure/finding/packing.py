"""Equal blocks from groups of coordinates of different sizes, and what a structure of them costs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from ..structure import Kind, Structure

Indices = Int[np.ndarray, " _"]
# Fewer blocks than this are no hierarchy that is worth a family of its own.
LEAST_BLOCKS = 4


class Candidate(NamedTuple):
    """A split of the coordinates that may be a structure, and where the idea came from."""

    globals: Indices
    blocks: Int[np.ndarray, "n b"]
    kind: Kind
    source: str

    @property
    def entries(self) -> int:
        """Numbers in the root of such a covariance."""
        k, (n, b) = len(self.globals), self.blocks.shape
        tied = n * b * b if self.kind == "chain" else 0
        return k * (k + 1) // 2 + n * (b * (b + 1) // 2 + b * k) + tied

    @property
    def worthwhile(self) -> bool:
        """Whether there are some blocks, twice as many locals as globals, and fewer entries than all."""
        dim = len(self.globals) + self.blocks.size
        few = 2 * len(self.globals) <= self.blocks.size and self.entries < dim * (dim + 1) // 2
        return len(self.blocks) >= LEAST_BLOCKS and few

    def without(self, scalars: Indices) -> "Candidate":
        """The same with scalar variables of the model among the globals, for blocks of one coordinate.

        Far from the posterior a scalar may be tied to locals so weakly that it looks like one of them:
        the degrees of freedom of errors, where all errors are small.
        """
        if self.blocks.shape[1] != 1:
            return self
        inside = np.isin(self.blocks[:, 0], scalars)
        globals = np.concatenate([self.globals, self.blocks[inside, 0]])
        return self._replace(globals=globals, blocks=self.blocks[~inside])

    def structure(self, source: str = "") -> Structure:
        """The structure itself."""
        return Structure(np.sort(self.globals), self.blocks, self.kind, source)


def pack(groups: Sequence[Indices], rest: Indices, source: str) -> Candidate | None:
    """Groups that are independent of each other as blocks of the size of the largest, if there are any.

    Small groups share a block, which may hold what is independent, too. What does not fill a block
    joins the `rest`, the globals.
    """
    groups = [group for group in groups if len(group)]
    if not groups:
        return None
    size = max(map(len, groups))
    full = [group for group in groups if len(group) == size]
    # Largest first: each open block takes the next group that fits.
    smaller: dict[int, list[Indices]] = {}
    for group in groups:
        if len(group) < size:
            smaller.setdefault(len(group), []).append(group)
    left = []
    while smaller:
        block = np.zeros(0, int)
        for length in sorted(smaller, reverse=True):
            while smaller[length] and len(block) + length <= size:
                block = np.concatenate([block, smaller[length].pop()])
        smaller = {length: some for length, some in smaller.items() if some}
        (full if len(block) == size else left).append(block)
    return Candidate(np.concatenate([rest, *left]).astype(int), np.stack(full), "arrowhead", source)
