"""Locals of many draws in NumPy: z = mean + R t for each draw, and back."""

from typing import Any

import numpy as np
from jaxtyping import Float

from ...structure import Structure
from .at_points import AtPoints
from .nested import Nested
from .nested_skewed import NestedSkewed

Many = Float[np.ndarray, "draws b n"]


class HostLocals:
    """What nested locals are at some values of the globals: `Locals` for each of them."""

    def __init__(self, nested: Nested, found: AtPoints):
        skewed = isinstance(nested, NestedSkewed)
        self.mean = found.x[:, :1].astype(float) if skewed else found.x.astype(float)
        self.skew = found.x[:, 2:].astype(float) if skewed else None
        self.diagonal = found.diagonal.astype(float)
        self.transition = None if found.transition is None else found.transition.astype(float)

    def transport(self, e: Many) -> Many:
        """z."""
        t = e
        if self.skew is not None:
            t = e * np.cosh(self.skew) + np.sqrt(1 + e**2) * np.sinh(self.skew)
        moves = _times(self.diagonal, t)
        if self.transition is not None:
            # One block after the other, for all draws at once.
            for i in range(1, moves.shape[2]):
                before = moves[:, :, i - 1]
                moves[:, :, i] += np.einsum("dij,dj->di", self.transition[:, :, :, i - 1], before)
        return self.mean + moves

    def inverse(self, z: Many) -> Many:
        """e."""
        moves = z - self.mean
        if self.transition is not None:
            tied = _times(self.transition, moves[:, :, :-1])
            moves = np.concatenate([moves[:, :, :1], moves[:, :, 1:] - tied], axis=2)
        rows: list[Any] = []
        for j in range(moves.shape[1]):
            left = moves[:, j] - sum(self.diagonal[:, j, i] * row for i, row in enumerate(rows))
            rows.append(left / self.diagonal[:, j, j])
        t = np.stack(rows, axis=1)
        if self.skew is None:
            return t
        return t * np.cosh(self.skew) - np.sqrt(1 + t**2) * np.sinh(self.skew)

    def log_det(self, e: Many) -> Float[np.ndarray, " draws"]:
        """log |dz/de|."""
        own = np.sum(np.log(np.einsum("diin->din", self.diagonal)), axis=(1, 2))
        if self.skew is None:
            return own
        slope = np.cosh(self.skew) + e / np.sqrt(1 + e**2) * np.sinh(self.skew)
        return own + np.sum(np.log(slope), axis=(1, 2))


def split(
    structure: Structure, x: Float[np.ndarray, "draws dim"]
) -> tuple[Float[np.ndarray, "draws k"], Many]:
    """Globals and locals of many points."""
    k = structure.k
    x = x if structure.ordered else x[:, np.asarray(structure.order)]
    return x[:, :k], x[:, k:].reshape(len(x), structure.b, structure.n)


def join(
    structure: Structure, g: Float[np.ndarray, "draws k"], own: Many
) -> Float[np.ndarray, "draws dim"]:
    """Points with these globals and locals."""
    flat = np.concatenate([g, own.reshape(len(own), -1)], axis=1)
    return flat if structure.ordered else flat[:, np.asarray(structure.place)]


def _times(matrices: Float[np.ndarray, "draws b c n"], vectors: Float[np.ndarray, "draws c n"]) -> Many:
    """M x for every draw and block; column by column, which is faster than an einsum."""
    return sum(matrices[:, :, j] * vectors[:, None, j] for j in range(vectors.shape[1]))  # pyright: ignore
