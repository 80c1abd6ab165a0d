"""Which coordinates are global, and which form blocks of locals: the shape of a hierarchy.

Given the globals, blocks are independent of each other ("arrowhead", after the shape of the precision
with the globals last), or each of them depends on the one before ("chain": a state space).
Arrays of locals have the blocks on their last axis, (block, n): long axes come last.
"""

from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int

from .._util.checks import whole
from .._util.device import on_device

Kind = Literal["arrowhead", "chain"]
KINDS: tuple[Kind, ...] = ("arrowhead", "chain")
# Pieces of a point up to which it is put together from slices, and coordinates that each is worth.
MOST_RUNS, WORTH = 8, 4


class Structure(eqx.Module):
    """The indices of k global coordinates, and of n blocks of b local ones; every coordinate is in one.

    `blocks` has a row for each block, in the order of the chain if it is one. Coordinates may be in any
    order: `split` takes a point apart, `join` puts it together again. Indices are integer arrays, so
    nothing trains them, and another structure of the same shapes does not compile again if its
    coordinates lie in many pieces.
    """

    globals: Int[Array, " k"]
    blocks: Int[Array, "n b"]
    # Coordinates in the order (globals, first of each block, second of each block, ...), and back.
    order: Int[Array, " dim"]
    place: Int[Array, " dim"]
    kind: Kind = eqx.field(static=True)
    # Whether that order is the coordinates' own, so that nothing needs to be moved.
    ordered: bool = eqx.field(static=True)
    # How it was found, in a sentence, if it was.
    source: str = eqx.field(static=True)
    # Where pieces of that order begin and end, in the coordinates' own, if there are few.
    runs: tuple[tuple[int, int], ...] | None = eqx.field(static=True, default=None)

    def __init__(self, globals: Any, blocks: Any, kind: Kind = "arrowhead", source: str = ""):
        first, rows = np.asarray(globals, np.int32), np.asarray(blocks, np.int32)
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}; got {kind!r}")
        if first.ndim != 1 or rows.ndim != 2 or (rows.size == 0 and first.size == 0):
            raise ValueError(
                "globals must be a list of coordinates, and blocks a table with a row of coordinates "
                f"for each block; got shapes {first.shape} and {rows.shape}"
            )
        order = np.concatenate([first, rows.T.ravel()])
        if not np.array_equal(np.sort(order), np.arange(order.size)):
            raise ValueError(
                f"every coordinate from 0 to {order.size - 1} must be a global or in one block, once; "
                f"{_wrong(order)}"
            )
        self.globals, self.blocks = on_device(first), on_device(rows)
        self.order, self.place = on_device(order), on_device(np.argsort(order).astype(np.int32))
        self.kind, self.ordered = kind, bool(np.array_equal(order, np.arange(order.size)))
        self.runs = _runs(order)
        self.source = source

    @classmethod
    def leading(cls, dim: int, *, globals: int = 1, kind: Kind = "arrowhead") -> "Structure":
        """The first coordinates are global, and each of the others is a block by itself."""
        dim = whole(dim, "dim", least=1)
        count = min(whole(globals, "globals", least=0), dim)
        return cls(np.arange(count), np.arange(count, dim)[:, None], kind)

    @property
    def dim(self) -> int:
        """All coordinates."""
        return self.order.shape[0]

    @property
    def k(self) -> int:
        """Global coordinates."""
        return self.globals.shape[0]

    @property
    def n(self) -> int:
        """Blocks."""
        return self.blocks.shape[0]

    @property
    def b(self) -> int:
        """Coordinates of a block."""
        return self.blocks.shape[1]

    @property
    def chained(self) -> bool:
        """Whether each block depends on the one before."""
        return self.kind == "chain"

    def split(self, z: Float[Array, " dim"]) -> tuple[Float[Array, " k"], Float[Array, "b n"]]:
        """The globals and the locals of a point."""
        if self.runs is not None:
            z = z if self.ordered else jnp.concatenate([z[first:end] for first, end in self.runs])
        else:
            z = moved(z, self.order)
        return z[: self.k], z[self.k :].reshape(self.b, self.n)

    def join(self, g: Float[Array, " k"], locals: Float[Array, "b n"]) -> Float[Array, " dim"]:
        """The point with these globals and locals."""
        flat = jnp.concatenate([g, locals.reshape(-1)])
        if self.ordered:
            return flat
        if self.runs is None:
            return moved(flat, self.place)
        # Pieces, and not indices: what one of them is a constant of then stays one of the model's.
        ends = np.cumsum([end - first for first, end in self.runs])
        pieces = [flat[end - (own[1] - own[0]) : end] for own, end in zip(self.runs, ends, strict=True)]
        return jnp.concatenate([pieces[place] for place in np.argsort([own[0] for own in self.runs])])

    def alike(self, other: "Structure") -> bool:
        """Whether both have the same globals and blocks of the same kind; by shapes within a program."""
        if (self.kind, self.blocks.shape, self.dim) != (other.kind, other.blocks.shape, other.dim):
            return False
        if any(isinstance(one.order, Tracer) for one in (self, other)):
            return True
        return np.array_equal(np.asarray(self.order), np.asarray(other.order))

    def with_kind(self, kind: Kind) -> "Structure":
        """The same coordinates as the other kind of structure."""
        return Structure(np.asarray(self.globals), np.asarray(self.blocks), kind, self.source)

    def __str__(self) -> str:
        held = f"{self.n:,} blocks of {self.b} local coordinate{'s' if self.b != 1 else ''}"
        tie = "each tied to the one before" if self.chained else "independent of each other"
        given = f" given {self.k:,} global one{'s' if self.k != 1 else ''}" if self.k else ""
        return f"{held}, {tie}{given}"


def moved(x: Float[Array, " dim"], index: Int[Array, " dim"]) -> Float[Array, " dim"]:
    """x[index] for a permutation, which needs no test of its bounds and whose transpose adds nothing."""
    return x.at[index].get(unique_indices=True, mode="promise_in_bounds")


def _runs(order: Int[np.ndarray, " dim"]) -> tuple[tuple[int, int], ...] | None:
    """Pieces [first, end) of successive coordinates; None if there are many."""
    cuts = np.flatnonzero(np.diff(order) != 1) + 1
    if len(cuts) + 1 > min(MOST_RUNS, max(1, order.size // WORTH)):
        return None
    return tuple((int(part[0]), int(part[-1]) + 1) for part in np.split(order, cuts) if part.size)


def _wrong(order: Int[np.ndarray, " dim"]) -> str:
    """What is not right with a list that should have every coordinate once."""
    values, counts = np.unique(order, return_counts=True)
    twice = values[counts > 1]
    missing = np.setdiff1d(np.arange(order.size), order)
    parts = [("given twice: ", twice), ("missing: ", missing)]
    return "; ".join(text + ", ".join(map(str, found[:5])) for text, found in parts if found.size)
