"""Which coordinates of a target meet in its Hessian: levels and entries of a sparse root.

Coordinates that meet most others come first, one after the other. The rest is coloured, so that those of
one colour do not meet; colours are levels. Every pair that meets has an entry, in the row of the later.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from .._util.later import csgraph
from ..targets import Target
from .finding.coded import DENSE, Sparse, decoded_graph, dense_graph, sampled_columns
from .finding.products import HessianProducts, Products

# Entries for each coordinate, and levels, beyond which nothing is gained over a dense matrix.
MOST_ENTRIES, MOST_LEVELS = 64, 32


class Pattern(NamedTuple):
    """Entries (row, column) below the diagonal of a root in the order of the levels, and how deep it is.

    `depth` is the number of levels less one: an entry leads from one level to a later one.
    """

    dim: int
    rows: Int[np.ndarray, " entries"]
    columns: Int[np.ndarray, " entries"]
    depth: int

    @classmethod
    def leading(cls, dim: int) -> "Pattern":
        """All coordinates follow the first one."""
        rows = np.arange(1, dim, dtype=np.int32)
        return cls(dim, rows, np.zeros_like(rows), min(1, dim - 1))

    @classmethod
    def of_levels(cls, edges: Sparse, levels: Int[np.ndarray, " dim"]) -> "Pattern":
        """An entry for every edge of a symmetric graph, whose ends are on different levels."""
        rows, columns = edges.nonzero()
        later = levels[rows] > levels[columns]
        rows, columns = (part[later].astype(np.int32) for part in (rows, columns))
        order = np.lexsort((columns, rows))
        return cls(edges.shape[0], rows[order], columns[order], int(levels.max(initial=0)))


def pattern_of(
    target: Target, dim: int | None = None, *, seed: int = 0, products: Products | None = None
) -> Pattern | None:
    """The pattern of a target, from the zeros of its Hessian at a random point; None if it has none.

    Takes some hundred products with the Hessian, whatever the dimension, and compiles a program for them
    unless there are `products` of one.
    """
    dim = target.dim if dim is None else dim
    if dim is None or target.on_disk or target.hyperparameter_count:
        return None
    hessian = HessianProducts(target, dim, np.random.default_rng([seed, dim]), None, products)
    if not hessian.move():
        return None
    if dim <= DENSE:
        graph = dense_graph(hessian)
    elif (sampled := sampled_columns(hessian)) is not None:
        graph = decoded_graph(hessian, *sampled)
    else:
        graph = None
    if graph is None:
        return None
    return of_graph(graph.edges, graph.heavy)


def of_graph(edges: Any, heavy: Int[np.ndarray, " heavy"]) -> Pattern | None:
    """Heavy coordinates first, each a level that all others follow, then the colours of the rest."""
    dim = edges.shape[0]
    light = np.setdiff1d(np.arange(dim), heavy)
    colours = _coloured(edges[light][:, light])
    if len(heavy) + colours.max(initial=0) >= MOST_LEVELS:
        return None
    levels = np.empty(dim, int)
    levels[heavy], levels[light] = np.arange(len(heavy)), len(heavy) + colours
    found = Pattern.of_levels(edges, levels)
    # Rows that all meet are not read, and so have no edges.
    own = ~np.isin(found.columns, heavy)
    rows, columns = [found.rows[own]], [found.columns[own]]
    for number, column in enumerate(heavy):
        after = np.concatenate([heavy[number + 1 :], light]).astype(np.int32)
        rows.append(after)
        columns.append(np.full(len(after), column, np.int32))
    rows, columns = np.concatenate(rows), np.concatenate(columns)
    if not 0 < len(rows) <= MOST_ENTRIES * dim:
        return None
    order = np.lexsort((columns, rows))
    return Pattern(dim, rows[order], columns[order], int(levels.max()))


def _coloured(edges: Any) -> Int[np.ndarray, " light"]:
    """The first colour that no neighbour has, in breadth-first order: two for a bipartite graph."""
    dim = edges.shape[0]
    colours, begun = np.full(dim, -1), edges.indptr
    for root in range(dim):
        if colours[root] >= 0:
            continue
        order = csgraph.breadth_first_order(edges, root, directed=False, return_predecessors=False)
        for vertex in order:
            taken = set(colours[edges.indices[begun[vertex] : begun[vertex + 1]]].tolist())
            colours[vertex] = next(c for c in range(len(taken) + 1) if c not in taken)
    return colours
