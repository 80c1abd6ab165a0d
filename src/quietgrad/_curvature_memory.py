"""What L-BFGS remembers, in the compact form of Byrd, Nocedal & Schnabel (1994).

With steps S and changes of the gradient Y as rows, R the upper triangle of S Y' and D its diagonal, the
inverse Hessian is gamma I plus terms in S and Y. A product with it takes four matrix-vector products and
two triangular solves, where the usual recursion takes two passes of Python over the pairs.
"""

import numpy as np
from jaxtyping import Float
from scipy.linalg.lapack import dtrtrs  # pyright: ignore[reportAttributeAccessIssue]

Vector = Float[np.ndarray, " n"]

# A part of the memory that is kept free.
SPARE = 5


class CurvatureMemory:
    """The last `most` pairs of steps and changes of the gradient."""

    def __init__(self, most: int, dim: int):
        self._most = most
        # With some room to spare, pairs move to the front once in a while, not with every new one.
        room = most + most // SPARE + 1
        self._moved, self._turned = np.empty((room, dim)), np.empty((room, dim))
        # S Y' and Y Y', of the pairs from `first` to `end`.
        self._mixed, self._squares = np.zeros((room, room)), np.zeros((room, room))
        self._first = self._end = 0

    def __len__(self) -> int:
        return self._end - self._first

    def clear(self) -> None:
        """Forget every pair."""
        self._first = self._end = 0

    def add(self, moved: Vector, turned: Vector) -> None:
        """Remember a pair with positive curvature; the oldest one makes room."""
        if len(self) == self._most:
            self._first += 1
        if self._end == len(self._moved):
            self._to_front()
        last, self._end = self._end, self._end + 1
        self._moved[last], self._turned[last] = moved, turned
        past = slice(self._first, self._end)
        self._mixed[past, last] = self._moved[past] @ turned
        self._squares[past, last] = self._squares[last, past] = self._turned[past] @ turned

    def _to_front(self) -> None:
        past, front = slice(self._first, self._end), slice(0, len(self))
        for rows in (self._moved, self._turned):
            rows[front] = rows[past]
        for table in (self._mixed, self._squares):
            table[front, front] = table[past, past]
        self._first, self._end = 0, len(self)

    def inverse_times(self, grad: Vector) -> Vector:
        """The product of the inverse Hessian that the pairs tell of with a vector."""
        if not len(self):
            return grad.copy()
        past = slice(self._first, self._end)
        moved, turned = self._moved[past], self._turned[past]
        # Below its diagonal the table is never written.
        squares, upper = self._squares[past, past], self._mixed[past, past]
        gamma = upper[-1, -1] / squares[-1, -1]
        # u = R^-1 S g,  w = R^-T (D u + gamma Y Y' u - gamma Y g):  H g = gamma (g - Y'u) + S'w
        u, _ = dtrtrs(upper, moved @ grad)
        w, _ = dtrtrs(upper, np.diagonal(upper) * u + gamma * (squares @ u - turned @ grad), trans=1)
        return gamma * (grad - u @ turned) + w @ moved
