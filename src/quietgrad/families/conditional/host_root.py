"""The root R of the locals' covariance at one value of the globals, for many vectors, in NumPy.

x_i = A_i x_{i-1} + L_i t_i,  or  N x = L t  with N block bidiagonal: R = N^-1 L. A = 0 but in a chain.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import solve_banded

Many = Float[np.ndarray, "vectors b n"]


class HostRoot(NamedTuple):
    """`diagonal` L and `transition` A of each block."""

    diagonal: Float[np.ndarray, "b b n"]
    transition: Float[np.ndarray, "b b before"] | None

    def times(self, t: Many) -> Many:
        """R t."""
        return self._through_chain(_times(self.diagonal, t), transposed=False)

    def transposed_times(self, v: Many) -> Many:
        """R'v."""
        return _times(np.swapaxes(self.diagonal, 0, 1), self._through_chain(v, transposed=True))

    def solve(self, x: Many) -> Many:
        """R^-1 x."""
        moves = x
        if self.transition is not None:
            tied = _times(self.transition, x[:, :, :-1])
            moves = np.concatenate([x[:, :, :1], x[:, :, 1:] - tied], axis=2)
        rows: list[Any] = []
        for j in range(moves.shape[1]):
            left = moves[:, j] - sum(self.diagonal[j, i] * row for i, row in enumerate(rows))
            rows.append(left / self.diagonal[j, j])
        return np.stack(rows, axis=1)

    def std(self) -> Float[np.ndarray, "b n"]:
        """The square roots of the diagonal of RR'."""
        return stds(self.diagonal, self.transition)

    def _through_chain(self, moves: Many, *, transposed: bool) -> Many:
        """N^-1 m, or N^-T m: a banded system in the order of time."""
        if self.transition is None:
            return moves
        b, n = moves.shape[1:]
        width = 2 * b - 1
        band = np.zeros((width + 1, b * n))
        # In LAPACK's form N[r, c] is at [r - c, c], and that of its transpose at [width + c - r, r].
        band[-1 if transposed else 0] = 1.0
        before = np.arange(n - 1) * b
        for j in range(b):
            for k in range(b):
                below = b + j - k
                if transposed:
                    band[width - below, before + b + j] = -self.transition[j, k]
                else:
                    band[below, before + k] = -self.transition[j, k]
        right = np.swapaxes(moves, 1, 2).reshape(len(moves), -1).T
        solved = solve_banded((0, width) if transposed else (width, 0), band, right, check_finite=False)
        return np.swapaxes(solved.T.reshape(len(moves), n, b), 1, 2)


def stds(
    diagonal: Float[np.ndarray, "... b b n"], transition: Float[np.ndarray, "... b b before"] | None
) -> Float[np.ndarray, "... b n"]:
    """The sds of R e for many roots, one block after the other in a chain."""
    own = np.einsum("...ijn,...kjn->n...ik", diagonal, diagonal)
    if transition is not None:
        ties = np.moveaxis(transition, -1, 0)
        for i in range(1, len(own)):
            own[i] += ties[i - 1] @ own[i - 1] @ np.swapaxes(ties[i - 1], -2, -1)
    return np.sqrt(np.einsum("n...ii->...in", own))


def _times(matrices: Float[np.ndarray, "b c n"], vectors: Float[np.ndarray, "vectors c n"]) -> Many:
    """M x for every vector and block."""
    return sum(matrices[:, j] * vectors[:, None, j] for j in range(vectors.shape[1]))  # pyright: ignore
