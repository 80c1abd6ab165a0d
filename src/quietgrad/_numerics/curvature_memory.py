"""What L-BFGS remembers, in the compact form of Byrd, Nocedal & Schnabel (1994).

With steps S and changes of the gradient Y as rows, R the upper triangle of S Y' and D its diagonal, the
inverse Hessian is gamma I plus terms in S and Y. A product with it takes four matrix-vector products and
two triangular solves, where the usual recursion takes two passes of Python over the pairs.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg.lapack import dtrtrs  # pyright: ignore[reportAttributeAccessIssue]

Vector = Float[np.ndarray, " n"]

# A part of the memory that is kept free.
SPARE = 5


class Pairs(NamedTuple):
    """Steps s, changes y of the gradient, and their inner products S Y' (upper triangle) and Y Y'."""

    s: Float[np.ndarray, "pairs n"]
    y: Float[np.ndarray, "pairs n"]
    sy: Float[np.ndarray, "pairs pairs"]
    yy: Float[np.ndarray, "pairs pairs"]

    @classmethod
    def none(cls, dim: int) -> "Pairs":
        """Nothing is remembered yet."""
        return cls(np.zeros((0, dim)), np.zeros((0, dim)), np.zeros((0, 0)), np.zeros((0, 0)))


class CurvatureMemory:
    """The last `most` pairs of steps and changes of the gradient."""

    def __init__(self, most: int, dim: int):
        self._most = most
        # With some room to spare, pairs move to the front once in a while, not with every new one.
        room = most + most // SPARE + 1
        self._s, self._y = np.empty((room, dim)), np.empty((room, dim))
        # S Y' and Y Y', of the pairs from `first` to `end`.
        self._sy, self._yy = np.zeros((room, room)), np.zeros((room, room))
        self._first = self._end = 0

    def __len__(self) -> int:
        return self._end - self._first

    def pairs(self) -> Pairs:
        """What is remembered, as arrays that later changes leave alone."""
        past = slice(self._first, self._end)
        tables = self._sy[past, past], self._yy[past, past]
        return Pairs(*(x.copy() for x in (self._s[past], self._y[past], *tables)))

    @classmethod
    def of(cls, pairs: Pairs, most: int) -> "CurvatureMemory":
        """A memory that holds these pairs."""
        count, dim = pairs.s.shape
        made = cls(most, dim)
        made._s[:count], made._y[:count], made._end = pairs.s, pairs.y, count
        made._sy[:count, :count], made._yy[:count, :count] = pairs.sy, pairs.yy
        return made

    def clear(self) -> None:
        """Forget every pair."""
        self._first = self._end = 0

    def add(self, s: Vector, y: Vector) -> None:
        """Remember a pair with positive curvature; the oldest one makes room."""
        if len(self) == self._most:
            self._first += 1
        if self._end == len(self._s):
            self._to_front()
        last, self._end = self._end, self._end + 1
        self._s[last], self._y[last] = s, y
        past = slice(self._first, self._end)
        self._sy[past, last] = self._s[past] @ y
        self._yy[past, last] = self._yy[last, past] = self._y[past] @ y

    def _to_front(self) -> None:
        past, front = slice(self._first, self._end), slice(0, len(self))
        for rows in (self._s, self._y):
            rows[front] = rows[past]
        for table in (self._sy, self._yy):
            table[front, front] = table[past, past]
        self._first, self._end = 0, len(self)

    def inverse_times(self, grad: Vector) -> Vector:
        """The product of the inverse Hessian that the pairs tell of with a vector."""
        if not len(self):
            return grad.copy()
        past = slice(self._first, self._end)
        s, y = self._s[past], self._y[past]
        # Below its diagonal the table is never written.
        yy, upper = self._yy[past, past], self._sy[past, past]
        gamma = upper[-1, -1] / yy[-1, -1]
        # u = R^-1 S g,  w = R^-T (D u + gamma Y Y' u - gamma Y g):  H g = gamma (g - Y'u) + S'w
        u, _ = dtrtrs(upper, s @ grad)
        w, _ = dtrtrs(upper, np.diagonal(upper) * u + gamma * (yy @ u - y @ grad), trans=1)
        return gamma * (grad - u @ y) + w @ s
