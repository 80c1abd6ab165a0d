"""Rows that stay where they are, on disk as a rule, and are read a piece at a time."""

import abc
import contextlib
import mmap
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int, PyTree

# Consecutive rows of an array that are read together: enough for a disk, few enough to be mixed.
RUN = 256
# Blocks that a sample of rows is taken from: each has to be read.
SAMPLED_BLOCKS = 32


class AbstractRows(abc.ABC):
    """`rows` rows in `runs`, which begin at these numbers and are read together."""

    rows: int
    runs: Int[np.ndarray, " runs"]

    @abc.abstractmethod
    def read(self, first: int, last: int) -> PyTree[np.ndarray]:
        """Rows first, ..., last - 1, copied into memory."""

    @abc.abstractmethod
    def take(self, numbers: Int[np.ndarray, " some"]) -> PyTree[np.ndarray]:
        """The rows of these numbers, which are sorted."""

    @abc.abstractmethod
    def sample(self, count: int, rng: np.random.Generator) -> Int[np.ndarray, " some"]:
        """Sorted numbers of rows at random that can be had without reading everything."""


class MappedRows(AbstractRows):
    """Arrays of NumPy, memory-mapped ones above all, with a common leading axis."""

    def __init__(self, arrays: PyTree[np.ndarray]):
        self.arrays = arrays
        self.rows = jax.tree.leaves(arrays)[0].shape[0]
        self.runs = np.arange(0, self.rows, RUN)

    def read(self, first: int, last: int) -> PyTree[np.ndarray]:
        """A slice."""
        return jax.tree.map(lambda x: _let_go(np.array(x[first:last]), x), self.arrays)

    def take(self, numbers: Int[np.ndarray, " some"]) -> PyTree[np.ndarray]:
        """Rows one by one."""
        return jax.tree.map(lambda x: _let_go(np.asarray(x[numbers]), x), self.arrays)

    def sample(self, count: int, rng: np.random.Generator) -> Int[np.ndarray, " some"]:
        """Any rows."""
        return np.sort(rng.choice(self.rows, min(count, self.rows), replace=False))


class RowBlocks(AbstractRows):
    """Data as a sequence of blocks of rows, each of which is loaded when it is needed.

    `blocks[i]` is a pytree of arrays with a common leading axis, the same pytree for all i: any object
    with `__len__` and `__getitem__`, for example one that reads a file. `lengths` are the rows of each
    block; without them every block is loaded once to be counted. Blocks are visited in a new random
    order every epoch and their rows are mixed with those of the next ones, so a block should not be
    too different from the others, or be small.
    """

    def __init__(self, blocks: Any, lengths: Sequence[int] | None = None):
        if not (hasattr(blocks, "__len__") and hasattr(blocks, "__getitem__")):
            raise TypeError(
                "blocks must have __len__ and __getitem__, as data are read more than once; got "
                f"{type(blocks).__name__}, so wrap it in a class or make a list"
            )
        if len(blocks) == 0:
            raise ValueError("there must be at least one block of rows; got none")
        self.blocks, self._loaded = blocks, (-1, None)
        counted = [_length(self._block(i)) for i in range(len(blocks))] if lengths is None else lengths
        if len(counted) != len(blocks) or min(counted) < 1:
            raise ValueError(f"lengths must say how many rows each of {len(blocks)} blocks has")
        ends = np.cumsum(np.asarray(counted, int))
        self.rows, self.runs = int(ends[-1]), np.concatenate([[0], ends[:-1]])

    def read(self, first: int, last: int) -> PyTree[np.ndarray]:
        """From as many blocks as it takes."""
        return self.take(np.arange(first, last))

    def take(self, numbers: Int[np.ndarray, " some"]) -> PyTree[np.ndarray]:
        """Each block is loaded once."""
        which = np.searchsorted(self.runs, numbers, side="right") - 1
        parts = []
        for number in np.unique(which):
            inside = numbers[which == number] - self.runs[number]
            parts.append(jax.tree.map(lambda x, i=inside: np.asarray(x)[i], self._block(int(number))))
        return jax.tree.map(lambda *x: np.concatenate(x), *parts)

    def sample(self, count: int, rng: np.random.Generator) -> Int[np.ndarray, " some"]:
        """Rows of a few blocks."""
        chosen = np.sort(rng.permutation(len(self.runs))[:SAMPLED_BLOCKS])
        ends = np.append(self.runs, self.rows)
        numbers = np.concatenate([np.arange(int(ends[i]), int(ends[i + 1])) for i in chosen])
        return np.sort(rng.choice(numbers, min(count, numbers.size), replace=False))

    def _block(self, number: int) -> PyTree:
        if self._loaded[0] != number:
            self._loaded = number, self.blocks[number]
        return self._loaded[1]


def mapped(data: PyTree) -> AbstractRows | None:
    """The data as rows that stay on disk, if that is what they are."""
    if isinstance(data, AbstractRows):
        return data
    leaves = jax.tree.leaves(data)
    if not any(isinstance(leaf, np.memmap) for leaf in leaves):
        return None
    lengths = {np.shape(leaf)[:1] for leaf in leaves}
    if len(lengths) > 1 or () in lengths or (0,) in lengths:
        raise ValueError(f"every array in data needs the same, non-empty leading axis; got {lengths}")
    return MappedRows(data)


def _length(block: PyTree) -> int:
    return np.shape(jax.tree.leaves(block)[0])[0]


def _let_go(copied: np.ndarray, source: Any) -> np.ndarray:
    """What was copied; the pages it came from need not stay in memory, the system's cache has them."""
    # Copy-on-write mappings ("c") hold changes that nothing else has.
    pages = getattr(source, "_mmap", None) if getattr(source, "mode", "c") != "c" else None
    if pages is not None and hasattr(mmap, "MADV_DONTNEED"):
        with contextlib.suppress(OSError, ValueError):
            pages.madvise(mmap.MADV_DONTNEED)
    return copied
