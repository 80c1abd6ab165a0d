"""The entries of a sparse Hessian that are not zero, from O(log d) products instead of d.

Coordinates are hashed into buckets, and each bucket has three products: with random signs s_j, with
s_j times the low digits of j, and with s_j times its high digits. In a row that has one entry of the
bucket, the ratios of the three spell the number of its column. What is known is subtracted, so that a
few hashes read all entries (an invertible Bloom lookup table, with sums in place of parities). Rows with
many entries cannot be read, and are recognised by that.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..._util.later import sparse
from .packing import Indices
from .products import HessianProducts

# Coordinates in up to so many dimensions are asked one by one.
DENSE = 128
# Columns that are looked at first; a coordinate in this many of them is a global.
SAMPLED, SHARED = 12, 3
# A column with more than this share of entries is full; so many coordinates at most have full rows.
FULL_SHARE, MOST_HEAVY = 0.25, 256
# Buckets for each entry of a row, at least and at most, and hashes at most.
ROOM, LEAST_BUCKETS, MOST_BUCKETS, HASHES = 3, 6, 48, 10
# A row that this share of the buckets meets has too many entries to be read.
BUSY = 0.75
# Numbers are spelt in two digits of this base; how far a ratio may be from a digit, and relative to it.
DIGITS, NEAR, NEARLY = 1024, 0.02, 2e-5

# SciPy's types of sparse matrices do not know their own products.
Sparse = Any


class Graph(NamedTuple):
    """Which entries off the diagonal are not zero, and the coordinates whose rows are full."""

    edges: Sparse
    heavy: Indices


class _Read(NamedTuple):
    """Entries read by one hash, and the rows that most buckets meet."""

    entries: Sparse
    busy: Bool[np.ndarray, " dim"]


def dense_graph(hessian: HessianProducts) -> Graph:
    """The graph of the Hessian at its present point, from a product for each coordinate."""
    matrix = np.abs(hessian(np.eye(hessian.dim)))
    return Graph(_symmetric(sparse.csr_matrix(matrix > hessian.resolution)), np.zeros(0, int))


def sampled_columns(hessian: HessianProducts) -> tuple[Indices, int] | None:
    """Coordinates that some random columns share, and the most entries of a column beside them.

    None if the Hessian is not sparse.
    """
    dim = hessian.dim
    chosen = np.random.default_rng(dim).choice(dim, SAMPLED, replace=False)
    units = np.zeros((SAMPLED, dim))
    units[np.arange(SAMPLED), chosen] = 1.0
    present = np.abs(hessian(units)) > hessian.resolution
    full = np.sum(present, axis=1) > FULL_SHARE * dim
    if 2 * np.sum(full) > SAMPLED:
        return None
    shared = np.flatnonzero(np.sum(present[~full], axis=0) >= SHARED)
    heavy = np.union1d(shared, chosen[full])
    present[:, heavy] = False
    return (heavy, int(np.max(np.sum(present[~full], axis=1)))) if len(heavy) <= MOST_HEAVY else None


def decoded_graph(hessian: HessianProducts, heavy: Indices, most: int) -> Graph | None:
    """The entries between the other coordinates, hash by hash until every row is explained.

    None if too many rows are not.
    """
    dim, rng = hessian.dim, np.random.default_rng(hessian.dim + 1)
    light = np.ones(dim, bool)
    light[heavy] = False
    probes = np.stack([hessian.vector() * light for _ in range(2)])
    answers = hessian(probes)
    size = np.maximum(np.max(np.abs(answers), axis=0), 1e-30)
    # Without entries off the diagonal, two random vectors give the same one.
    known: Sparse = sparse.csr_matrix((dim, dim))
    pool: Sparse = sparse.csr_matrix((dim, dim))
    diagonal = answers[:, light] / probes[:, light]
    open_rows = light.copy()
    open_rows[light] = np.ptp(diagonal, axis=0) > 10 * hessian.resolution * size[light]
    if np.any(open_rows):
        buckets = int(np.clip(ROOM * (most + 1), LEAST_BUCKETS, MOST_BUCKETS))
        busy = np.zeros(dim, bool)
        for _ in range(HASHES):
            read = _one_hash(hessian, light, buckets, size, known, rng)
            busy |= read.busy
            pool = _corrected(pool, known, read.entries)
            known = _confirmed(pool, busy)
            unexplained = np.abs(answers - (known @ probes.T).T) > 10 * hessian.resolution * size
            before, open_rows = open_rows, light & np.any(unexplained, axis=0)
            stuck = np.sum(open_rows) >= np.sum(before) and np.sum(open_rows) <= MOST_HEAVY
            if stuck or not np.any(open_rows & ~busy):
                break
    full = np.flatnonzero(~light | open_rows)
    return Graph(_symmetric(known != 0), full) if len(full) <= MOST_HEAVY else None


def _one_hash(
    hessian: HessianProducts,
    light: Bool[np.ndarray, " dim"],
    buckets: int,
    size: Float[np.ndarray, " dim"],
    known: Sparse,
    rng: np.random.Generator,
) -> _Read:
    """The unknown entries that are alone in their bucket in their row."""
    dim = hessian.dim
    numbers, rows = np.arange(dim), np.flatnonzero(light)
    bucket, signs = rng.integers(0, buckets, dim), rng.choice([-1.0, 1.0], dim)
    spelt = np.stack([np.ones(dim), numbers % DIGITS + 1.0, numbers // DIGITS + 1.0])
    made, met = [], np.zeros(dim)
    for number in range(buckets):
        own = np.where(light & (bucket == number), signs, 0.0) * spelt
        answers = hessian(own)
        met += np.abs(answers[0]) > hessian.resolution * size
        plain, *digits = (answers - (known @ own.T).T)[:, rows]
        seen = np.abs(plain) > hessian.resolution * size[rows]
        low, high = (x[seen] / plain[seen] for x in digits)
        column = (np.rint(high) - 1) * DIGITS + np.rint(low) - 1
        fine = _whole(low) & _whole(high) & (column >= 0) & (column < dim)
        row, column, value = rows[seen][fine], column[fine].astype(int), plain[seen][fine]
        right = light[column] & (bucket[column] == number)
        made.append((row[right], column[right], value[right] * signs[column[right]]))
    row, column, value = (np.concatenate(parts) for parts in zip(*made, strict=True))
    return _Read(sparse.csr_matrix((value, (row, column)), (dim, dim)), met > BUSY * buckets)


def _whole(x: Float[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Whether ratios are digits, to what rounding may have done to them."""
    return (np.abs(x - np.rint(x)) < NEAR + NEARLY * np.abs(x)) & (x > 0.5) & (x < DIGITS**2)


def _corrected(pool: Sparse, known: Sparse, read: Sparse) -> Sparse:
    """What was read before, and in its place what is read now: a difference to what was known."""
    again = read != 0
    return sparse.csr_matrix(pool - pool.multiply(again) + known.multiply(again) + read)


def _confirmed(pool: Sparse, busy: Bool[np.ndarray, " dim"]) -> Sparse:
    """Entries that were read on both sides of the diagonal, or of a column whose row cannot be read."""
    both = (pool != 0).multiply((pool != 0).T)
    columns = sparse.diags(busy.astype(float))
    return sparse.csr_matrix(
        pool.multiply(both) + sparse.csr_matrix(pool - pool.multiply(both)) @ columns
    )


def _symmetric(present: Sparse) -> Sparse:
    """The pattern and its mirror image, without the diagonal."""
    rows, columns = present.nonzero()
    apart = rows != columns
    places = np.concatenate([rows[apart], columns[apart]]), np.concatenate([columns[apart], rows[apart]])
    return sparse.csr_matrix((np.ones(len(places[0])), places), present.shape) > 0
