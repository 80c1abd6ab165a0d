"""Candidates from the zeros of a Hessian, as a graph: without a few globals it falls into small parts.

Vertices are coordinates, and an edge says that an entry is not zero. The coordinates of the highest
degrees are taken as globals, one more at a time; what is left are groups that are independent of each
other, or a chain if an order of them has a narrow band.
"""

from collections.abc import Iterator

import numpy as np

from ..._util.later import csgraph
from ..structure import Kind
from .coded import Sparse
from .packing import Candidate, Indices, pack

MOST_GLOBALS, MOST_BLOCK, MOST_STATE = 64, 16, 8
SOURCE = "the zeros of the Hessian"


def natural(heavy: Indices, entries: int, dim: int) -> Iterator[Candidate]:
    """Splits of the coordinates in their own order, for columns with so many entries beside the heavy.

    Blocks lie one after the other, or as an array for each coordinate of a block.
    """
    left = np.setdiff1d(np.arange(dim), heavy)
    sizes: list[tuple[Kind, int]] = [("arrowhead", entries)]
    if entries % 3 == 0:
        sizes.append(("chain", entries // 3))
    for kind, size in sizes:
        if len(left) % size == 0 and size <= MOST_BLOCK:
            shapes = [left.reshape(-1, size)] + ([left.reshape(size, -1).T] if size > 1 else [])
            made = (Candidate(heavy, blocks, kind, SOURCE) for blocks in shapes)
            yield from (one for one in made if one.worthwhile)


def candidates(edges: Sparse, heavy: Indices) -> list[Candidate]:
    """Splits that the graph allows, the cheapest first; `heavy` coordinates are globals in all."""
    found = list(_splits(edges, heavy))
    return sorted((one for one in found if one.worthwhile), key=lambda one: one.entries)


def _splits(edges: Sparse, heavy: Indices) -> Iterator[Candidate]:
    degrees = np.asarray(edges.sum(axis=0)).ravel().astype(int)
    degrees[heavy] = edges.shape[0]
    order = np.argsort(-degrees, kind="stable")
    for count in range(len(heavy), min(len(order), len(heavy) + MOST_GLOBALS) + 1):
        taken, left = order[:count], np.sort(order[count:])
        between = edges[left][:, left]
        number, label = csgraph.connected_components(between, directed=False)
        if number and np.max(np.bincount(label)) <= MOST_BLOCK:
            groups = np.split(left[np.argsort(label, kind="stable")], np.cumsum(np.bincount(label))[:-1])
            packed = pack(groups, taken, SOURCE)
            assert packed is not None
            yield packed
            # More globals cut blocks further down; from some number of blocks on that is no gain.
            if packed.blocks.shape[1] == 1 or (packed.worthwhile and len(packed.blocks) > MOST_GLOBALS):
                return
            continue
        chained = _chain(between, left, taken)
        if chained is not None:
            yield chained


def _chain(between: Sparse, left: Indices, taken: Indices) -> Candidate | None:
    """The order with the smallest states that meet only their neighbours, if they are small."""
    rows, columns = between.nonzero()
    own = np.arange(len(left))
    narrow = np.asarray(csgraph.reverse_cuthill_mckee(between, symmetric_mode=True))
    for size in range(1, MOST_STATE + 1):
        # As they are; or an array for each coordinate of a state; or any order of a narrow band.
        apart = own.reshape(size, -1).T.ravel() if len(own) % size == 0 else own
        for order in (own, apart, narrow):
            place = np.empty(len(order), int)
            place[order] = np.arange(len(order))
            if _tridiagonal(place, rows, columns, size):
                whole = len(order) - len(order) % size
                blocks = left[order[:whole]].reshape(-1, size)
                return Candidate(np.concatenate([taken, left[order[whole:]]]), blocks, "chain", SOURCE)
    return None


def _tridiagonal(place: Indices, rows: Indices, columns: Indices, size: int) -> bool:
    """Whether states of `size` coordinates each meet only their neighbours."""
    apart = np.abs(place[rows] // size - place[columns] // size)
    return bool(np.max(apart, initial=0) <= 1)
