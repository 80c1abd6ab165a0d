"""Sobol's points as binary digits, from the direction numbers of Joe & Kuo (2008) that SciPy ships.

SciPy's own generator lives in `scipy.stats`, whose import takes a second; its table is read directly.
Scrambling is a hash in the manner of Laine & Karras (2011), written in operators that NumPy's and JAX's
arrays share.
"""

import functools
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt32

MOST_DIMENSIONS = 21_201
BITS = 32
MULTIPLIERS = (0x6C50B47C, 0xB82F1E52, 0xC7AFE638, 0x8D22F6E6)
SWAPS = ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF), (16, 0x0000FFFF))


def scramble(reversed_digits: Any, seed: Any) -> Any:
    """A random nested permutation of digits stored lowest first; `seed` is uniform, one a coordinate.

    On reversed digits, carries of sums and products run from leading digits to trailing ones: a digit's
    flip depends on the digits before it only, which is what a nested scramble is.
    """
    x = reversed_digits + seed
    for multiplier in MULTIPLIERS:
        x = x ^ (x * np.uint32(multiplier))
    return x


def reverse_digits(x: Any) -> Any:
    """32 binary digits in the opposite order."""
    for shift, mask in SWAPS:
        keep = np.uint32(mask)
        x = ((x >> np.uint32(shift)) & keep) | ((x & keep) << np.uint32(shift))
    return x


def sobol_digits(points: int, dim: int) -> UInt32[np.ndarray, "points dim"]:
    """The first points, 32 binary digits each."""
    directions = _directions(max(1, int(points - 1).bit_length()))[:, :dim]
    digits = np.zeros((points, dim), np.uint32)
    for number in range(1, points):
        # Gray code: neighbours differ by the direction of the lowest zero bit.
        changed = (~(number - 1) & number).bit_length() - 1
        digits[number] = digits[number - 1] ^ directions[changed]
    return digits


@functools.lru_cache(maxsize=8)
def _directions(count: int) -> UInt32[np.ndarray, "count dim"]:
    """The first direction numbers of every coordinate, their highest digit first."""
    polynomial, start = _table()
    degree = np.array([int(p).bit_length() - 1 for p in polynomial])
    directions = np.zeros((count, polynomial.size), np.int64)
    directions[:, 0] = 1
    for bit in range(count):
        given = bit < degree
        width = min(bit, start.shape[1] - 1)
        directions[bit, given] = start[given, width]
        known = ~given
        known[0] = False
        if not known.any():
            continue
        index = np.flatnonzero(known)
        new = directions[bit - degree[index], index].copy()
        for back in range(1, bit + 1):
            reach = degree[index] >= back
            if not reach.any():
                break
            some = index[reach]
            coefficient = (polynomial[some] >> (degree[some] - back)) & 1
            new[reach] ^= coefficient * (directions[bit - back, some] << back)
        directions[bit, index] = new
    shift = BITS - 1 - np.arange(count)
    return (directions << shift[:, None]).astype(np.uint32)


@functools.lru_cache(maxsize=1)
def _table() -> tuple[np.ndarray, np.ndarray]:
    """Primitive polynomials and initial direction numbers."""
    found = importlib.util.find_spec("scipy")
    assert found is not None
    assert found.origin is not None
    file = Path(found.origin).parent / "stats" / "_sobol_direction_numbers.npz"
    with np.load(file) as table:
        return table["poly"].astype(np.int64), table["vinit"].astype(np.int64)
