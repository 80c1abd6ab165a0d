"""Nested locals at many values of the globals, on the host: one program for fits, draws and densities.

For each g it has log p(g) with its slope, the locals' parameters and the root of their covariance. A fit
of the globals reads the first two, a draw the others: what a hierarchy needs is compiled once.
"""

from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..._numerics.lapack import over_points
from ..._util.compiling import SOONER, program
from ..._util.device import on_device
from .nested import MOST, Nested
from .nested_laplace import NestedLaplace
from .nested_skewed import NestedSkewed
from .shorter import shorter

# Points that a call has room for, those worked on together, and numbers that these may hold.
ROOM, TOGETHER, HELD = 32, 8, 2**16
# Newton steps from a start that nothing is known of.
MOST_AT_FIRST = 200
# Curvature is differenced over this many sds of the locals for their skewness.
APART = 0.3


class AtPoints(NamedTuple):
    """log p(g), its slopes, the locals' parameters, and the diagonal and transitions of their root.

    Values and slopes are not numbers where they were not asked for.
    """

    values: Float[np.ndarray, " points"]
    slopes: Float[np.ndarray, "points k"]
    x: Float[np.ndarray, "points p n"]
    diagonal: Float[np.ndarray, "points b b n"]
    transition: Float[np.ndarray, "points b b before"] | None


def at_points(
    nested: Nested, g: Float[np.ndarray, "points k"], most: int = MOST, *, marginal: bool = False
) -> Iterator[AtPoints]:
    """Up to `ROOM` points at a time, as double precision, but the locals as the program has them.

    With `marginal` log p(g) and its slopes, which draws do not need.
    """
    structure, dtype = nested.structure, np.dtype(nested.center.dtype)
    # A power of two, so that it divides the room.
    together = max(1, min(TOGETHER, HELD // max(1, structure.n * structure.b)))
    together = 2 ** (together.bit_length() - 1)
    steps, wanted = on_device(most, np.int32), on_device(marginal, bool)
    for first in range(0, len(g), ROOM):
        some = g[first : first + ROOM]
        block = np.empty((ROOM, g.shape[1]), dtype)
        block[: len(some)], block[len(some) :] = some, some[-1]
        needed = on_device(-(-len(some) // together), np.int32)
        shaped = on_device(block.reshape(ROOM // together, together, -1))
        found = jax.device_get(_program(nested, shaped, needed, steps, wanted))
        value, slope, *rest = (
            None if part is None else part.reshape(ROOM, *part.shape[2:])[: len(some)] for part in found
        )
        assert value is not None
        assert slope is not None
        yield AtPoints(value.astype(float), slope.astype(float), *rest)  # pyright: ignore


def recentred(
    nested: Nested,
    g: Float[np.ndarray, " k"],
    sizes: Float[np.ndarray, " k"] | None = None,
    most: int = MOST,
) -> Nested:
    """The same with predictions that begin at g; with `sizes` of differences, new slopes for them."""
    moves = np.zeros((0, len(g))) if sizes is None else np.diag(sizes)
    points = np.concatenate([g[None], g + moves, g - moves])
    x = np.concatenate([part.x for part in at_points(nested, points, most)])
    dtype, slopes = nested.center.dtype, nested.slopes
    if sizes is not None:
        k = len(g)
        differences = (x[1 : k + 1] - x[k + 1 :]) / (2 * sizes[:, None, None]).astype(x.dtype)
        differences = differences if np.all(np.isfinite(differences)) else np.zeros_like(differences)
        slopes = on_device(np.moveaxis(differences, 0, 1), dtype)
    new = on_device(g, dtype), on_device(x[0], dtype), slopes
    return eqx.tree_at(lambda own: (own.center, own.parameters, own.slopes), nested, new)


def skewness(
    nested: NestedLaplace,
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Sds and f''' s^3 of the locals at the centre, in blocks of one: zero where these are Gaussian.

    From their curvatures, all locals moved at once to both sides: independent ones do not mind.
    """
    assert nested.structure.b == 1
    assert not nested.structure.chained
    middle = np.asarray(nested.center, float)[None]

    def std(x: Float[np.ndarray, "1 n"]) -> Float[np.ndarray, " n"]:
        there = eqx.tree_at(lambda own: own.parameters, nested, on_device(x, nested.center.dtype))
        return next(at_points(there, middle, 0)).diagonal[0, 0, 0].astype(float)

    x = np.asarray(nested.parameters, float)
    own = std(x)
    right, left = std(x + APART * own), std(x - APART * own)
    return own, (left**-2.0 - right**-2.0) * own**2 / (2 * APART)


def skewed_locals(nested: NestedLaplace) -> NestedSkewed:
    """Skewed locals in place of Gaussian ones, at the same centre."""
    made = NestedSkewed.start(nested, *skewness(nested))
    found = recentred(made, np.asarray(made.center, float), most=MOST_AT_FIRST)
    assert isinstance(found, NestedSkewed)
    return found


@program(level=SOONER)
def _program(
    nested: Nested,
    g: Float[Array, "blocks points k"],
    needed: Int[Array, ""],
    most: Int[Array, ""],
    marginal: Bool[Array, ""],
) -> tuple[Array, Array, Array, Array, Array | None]:
    def point(g: Float[Array, " k"]) -> tuple[Array, Array, Array, Array, Array | None]:
        found = nested.solve(g, most)
        value, slope = jax.lax.cond(
            marginal,
            lambda: shorter(nested.marginal_and_slope, g, found)(g, found),
            lambda: (jnp.full((), jnp.nan, g.dtype), jnp.full_like(g, jnp.nan)),
        )
        return value, slope, found.x, found.root.diagonal, found.root.transition

    def block(i: Int[Array, ""], held: tuple[Array | None, ...]) -> tuple[Array | None, ...]:
        return jax.tree.map(lambda all, one: all.at[i].set(one), held, over_points(point, g[i]))

    # Written down, because to trace the model once more for its shapes takes seconds.
    b, n = nested.structure.b, nested.structure.n
    shapes = [(), (g.shape[-1],), nested.parameters.shape, (b, b, n)]
    nothing = [jnp.full((*g.shape[:2], *shape), jnp.nan, g.dtype) for shape in shapes]
    tie = jnp.full((*g.shape[:2], b, b, n - 1), jnp.nan, g.dtype) if nested.structure.chained else None
    return jax.lax.fori_loop(0, needed, block, (*nothing, tie))  # pyright: ignore
