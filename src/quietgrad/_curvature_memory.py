"""What L-BFGS remembers, in the compact form of Byrd, Nocedal & Schnabel (1994).

With steps S and changes of the gradient Y as rows, R the upper triangle of S Y' and D its diagonal, the
inverse Hessian is gamma I plus terms in S and Y. A product with it takes four matrix-vector products and
two triangular solves, where the usual recursion takes two passes of Python over the pairs.
"""

import numpy as np
from jaxtyping import Float
from scipy.linalg.lapack import dtrtrs  # pyright: ignore[reportAttributeAccessIssue]

Vector = Float[np.ndarray, " n"]


class CurvatureMemory:
    """The last `most` pairs of steps and changes of the gradient."""

    def __init__(self, most: int, dim: int):
        self._most, self._count = most, 0
        self._moved, self._turned = np.empty((most, dim)), np.empty((most, dim))
        # S Y' and Y Y', of the pairs so far.
        self._mixed, self._squares = np.zeros((most, most)), np.zeros((most, most))

    def __len__(self) -> int:
        return self._count

    def clear(self) -> None:
        """Forget every pair."""
        self._count = 0

    def add(self, moved: Vector, turned: Vector) -> None:
        """Remember a pair with positive curvature; the oldest one makes room."""
        if self._count == self._most:
            for rows in (self._moved, self._turned):
                rows[:-1] = rows[1:]
            for table in (self._mixed, self._squares):
                table[:-1, :-1] = table[1:, 1:]
            self._count -= 1
        last, self._count = self._count, self._count + 1
        self._moved[last], self._turned[last] = moved, turned
        past = slice(0, self._count)
        self._mixed[past, last] = self._moved[past] @ turned
        self._squares[past, last] = self._squares[last, past] = self._turned[past] @ turned

    def inverse_times(self, grad: Vector) -> Vector:
        """The product of the inverse Hessian that the pairs tell of with a vector."""
        if not self._count:
            return grad.copy()
        past = slice(0, self._count)
        moved, turned = self._moved[past], self._turned[past]
        # Below its diagonal the table is never written.
        squares, upper = self._squares[past, past], self._mixed[past, past]
        gamma = upper[-1, -1] / squares[-1, -1]
        # u = R^-1 S g,  w = R^-T (D u + gamma Y Y' u - gamma Y g):  H g = gamma (g - Y'u) + S'w
        u, _ = dtrtrs(upper, moved @ grad)
        w, _ = dtrtrs(upper, np.diagonal(upper) * u + gamma * (squares @ u - turned @ grad), trans=1)
        return gamma * (grad - u @ turned) + w @ moved
