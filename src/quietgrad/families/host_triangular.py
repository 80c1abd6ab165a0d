"""The triangular flow of `triangular.py` in NumPy: many draws at once, and the gradient by its numbers.

In a few dimensions arithmetic costs next to nothing, and a program that jax compiles seconds.
"""

import itertools
import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

# Arrays that are trained, the first ones; and how unlike the two tails may be: exponents of their growth
# of 1 +- `MOST_LEAN` times that in the middle, so that the inverse keeps half the digits at hand.
TRAINED, MOST_LEAN = 7, 0.95

Draws = Float[np.ndarray, "draws dim"]


class Carried(NamedTuple):
    """Where draws are carried to, log |dz/de|, and what its gradient needs."""

    z: Draws
    log_det: Float[np.ndarray, " draws"]
    inner: Draws
    u: Draws
    scale: Draws


class HostTriangular(NamedTuple):
    """The family's numbers, its Gaussian's mean and root, and the order of its coordinates."""

    shift: Float[np.ndarray, " dim"]
    log_scale: Float[np.ndarray, " dim"]
    skew: Float[np.ndarray, " dim"]
    tail: Float[np.ndarray, " dim"]
    turn: Float[np.ndarray, " dim"]
    mean_slope: Float[np.ndarray, "below 2"]
    scale_slope: Float[np.ndarray, "below 2"]
    mean: Float[np.ndarray, " dim"]
    root: Float[np.ndarray, "dim dim"]
    order: Int[np.ndarray, " dim"]

    @property
    def numbers(self) -> Float[np.ndarray, " p"]:
        """All that is trained, in the order of the fields."""
        return np.concatenate([part.ravel() for part in self[:TRAINED]])

    def with_numbers(self, x: Float[np.ndarray, " p"]) -> "HostTriangular":
        """The same Gaussian with other numbers."""
        parts = self[:TRAINED]
        ends = np.cumsum([part.size for part in parts])
        split = zip(np.split(x, ends[:-1]), parts, strict=True)
        made = (own.reshape(part.shape) for own, part in split)
        return self._replace(**dict(zip(self._fields, made, strict=False)))

    def carried(self, e: Draws) -> Carried:
        """One coordinate after the other."""
        x, lean = np.arcsinh(e), MOST_LEAN * np.tanh(self.turn)
        root = np.sqrt(1 + x**2)
        inner = np.exp(self.tail) * (x + lean * (root - 1)) + self.skew
        log_det = np.sum(np.logaddexp(inner, -inner) - 0.5 * np.log1p(e**2), axis=1)
        log_det += np.sum(np.log1p(lean * x / root), axis=1)
        log_det += np.sum(self.tail - math.log(2.0)) + np.sum(np.log(np.diagonal(self.root)))
        v, u, scale = np.sinh(inner), np.zeros_like(e), np.empty_like(e)
        for j, rows in enumerate(self._rows()):
            known = _features(u[:, :j])
            log = self.log_scale[j] + known @ self.scale_slope[rows].ravel()
            scale[:, j] = np.exp(log)
            u[:, j] = self.shift[j] + known @ self.mean_slope[rows].ravel() + scale[:, j] * v[:, j]
            log_det += log
        z = np.empty_like(u)
        z[:, self.order] = self.mean + u @ self.root.T
        return Carried(z, log_det, inner, u, scale)

    def pulled(self, e: Draws, at: Carried, slopes: Draws) -> Float[np.ndarray, " p"]:
        """The gradient of sum_l slopes_l z_l + log |dz/de|_l by `numbers`: `carried` backwards."""
        v, by_u = np.sinh(at.inner), slopes[:, self.order] @ self.root
        by_log = np.empty_like(e)
        means, scales = np.zeros_like(self.mean_slope), np.zeros_like(self.scale_slope)
        for j, rows in reversed(list(enumerate(self._rows()))):
            by_log[:, j] = by_u[:, j] * at.scale[:, j] * v[:, j] + 1
            known, shape = _features(at.u[:, :j]), means[rows].shape
            means[rows] = (by_u[:, j] @ known).reshape(shape)
            scales[rows] = (by_log[:, j] @ known).reshape(shape)
            by_known = by_u[:, j, None, None] * self.mean_slope[rows]
            by_known = by_known + by_log[:, j, None, None] * self.scale_slope[rows]
            before = at.u[:, :j]
            by_u[:, :j] += by_known[:, :, 0] + by_known[:, :, 1] * before / np.sqrt(1 + before**2)
        by_inner = by_u * at.scale * np.cosh(at.inner) + np.tanh(at.inner)
        by_tail = np.sum(by_inner * (at.inner - self.skew) + 1, axis=0)
        x, turned = np.arcsinh(e), np.tanh(self.turn)
        root = np.sqrt(1 + x**2)
        by_lean = by_inner * np.exp(self.tail) * (root - 1) + x / (root + MOST_LEAN * turned * x)
        by_turn = np.sum(by_lean, axis=0) * MOST_LEAN * (1 - turned**2)
        parts = np.sum(by_u, axis=0), np.sum(by_log, axis=0), np.sum(by_inner, axis=0), by_tail, by_turn
        return np.concatenate([*parts, means.ravel(), scales.ravel()])

    def inverse(self, z: Draws) -> Draws:
        """e of points."""
        u = np.linalg.solve(self.root, (z[:, self.order] - self.mean).T).T
        v = np.empty_like(u)
        for j, rows in enumerate(self._rows()):
            known = _features(u[:, :j])
            log = self.log_scale[j] + known @ self.scale_slope[rows].ravel()
            left = u[:, j] - self.shift[j] - known @ self.mean_slope[rows].ravel()
            v[:, j] = left * np.exp(-log)
        lean = MOST_LEAN * np.tanh(self.turn)
        w = (np.arcsinh(v) - self.skew) * np.exp(-self.tail) + lean
        return np.sinh((w - lean * np.sqrt(w**2 + 1 - lean**2)) / (1 - lean**2))

    def _rows(self) -> list[slice]:
        """The rows of each coordinate in a table of pairs."""
        return [slice(*ends) for ends in itertools.pairwise(below(len(self.shift)))]


def below(dim: int) -> tuple[int, ...]:
    """Where the rows of each coordinate begin in a table of pairs."""
    return tuple(j * (j - 1) // 2 for j in range(dim + 1))


def _features(u: Float[np.ndarray, "draws some"]) -> Float[np.ndarray, "draws features"]:
    return np.stack([u, np.sqrt(1 + u**2) - 1], axis=-1).reshape(len(u), -1)
