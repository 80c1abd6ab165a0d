"""A triangular map of normal draws: skew, tails, bends and necks, on the host and in JAX.

Coordinate after coordinate, in an order of its own, with u the draw and v its image,
  v_i = t_i + exp(r_i + sum_{j<i} S_ij u_j) s_i(u_i) + sum_{j<i} (L_ij u_j + Q_ij (u_j^2 - 1)),
  s_i(u) = sinh((asinh u + a_i) exp(b_i)).
s is the sinh-arcsinh transform (Jones & Pewsey 2009): a skews, b makes tails lighter or heavier. Q bends
v_i along u_j as a banana, S widens it as a funnel does, L turns. The Jacobian is triangular,
  log|det J| = sum_i r_i + sum_{j<i} S_ij u_j + log s_i'(u_i),
and the score of v's density is J^-T (score of u - grad log|det J|), by one back substitution.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float

from .flow import AbstractLayer

# Bounds of log scales. Beyond, a scale says nothing of a posterior any more and may overflow.
MOST = 20.0
# Coordinates of a back substitution that are solved one by one; beyond, matrices are multiplied.
BLOCK = 16


class Bend(AbstractLayer):
    """The map with `own` = (t, r, a, b) of every coordinate and `pairs` = (S, L, Q) of every j < i.

    `order` lists the coordinates in the order in which they are made; pairs are packed row by row.
    """

    own: Float[Array, "4 dim"]
    pairs: Float[Array, "3 pairs"]
    order: tuple[int, ...]

    @classmethod
    def identity(cls, order: tuple[int, ...], dtype: Any = None) -> "Bend":
        """The map that changes nothing."""
        dim = len(order)
        own, pairs = np.zeros((4, dim)), np.zeros((3, dim * (dim - 1) // 2))
        return cls(jnp.asarray(own, dtype), jnp.asarray(pairs, dtype), order)

    def _matrices(self) -> Float[Array, "3 dim dim"]:
        dim = len(self.order)
        rows, columns = np.tril_indices(dim, -1)
        return jnp.zeros((3, dim, dim), self.pairs.dtype).at[:, rows, columns].set(self.pairs)

    def forward(self, u: Float[Array, " dim"]) -> tuple[Float[Array, " dim"], Float[Array, ""]]:
        """The image of u and log|det J|."""
        (t, r, a, b), (tilt, turn, square) = self.own, self._matrices()
        u = u[np.array(self.order)]
        log_scale = jnp.clip(r + tilt @ u, -MOST, MOST)
        inner = (jnp.arcsinh(u) + a) * jnp.exp(b)
        v = t + jnp.exp(log_scale) * jnp.sinh(inner) + turn @ u + square @ (u**2 - 1)
        log_det = jnp.sum(log_scale + jnp.log(jnp.cosh(inner)) + b - 0.5 * jnp.log1p(u**2))
        return v[np.argsort(self.order)], log_det

    def forward_with_score(
        self, u: Float[Array, " dim"], score: Float[Array, " dim"]
    ) -> tuple[Float[Array, " dim"], Float[Array, ""], Float[Array, " dim"]]:
        """The score by the Jacobian, whose rows and columns are triangular in the order."""
        (v, log_det), (jacobian, slope) = self.forward(u), jax.jacfwd(self.forward)(u)
        order = np.array(self.order)
        triangle = jacobian[order][:, order]
        moved = solve_triangular(triangle, (score - slope)[order], lower=True, trans="T")
        return v, log_det, moved[np.argsort(order)]

    def inverse(self, v: Float[Array, " dim"]) -> Float[Array, " dim"]:
        """Coordinate after coordinate."""
        (t, r, a, b), (tilt, turn, square) = self.own, self._matrices()
        v = v[np.array(self.order)]

        def find(i: Array, u: Float[Array, " dim"]) -> Float[Array, " dim"]:
            # Coordinates from i on do not count: their entries are zero.
            rest = v[i] - t[i] - turn[i] @ u - square[i] @ (u**2 - 1)
            s = rest * jnp.exp(-jnp.clip(r[i] + tilt[i] @ u, -MOST, MOST))
            return u.at[i].set(jnp.sinh(jnp.arcsinh(s) * jnp.exp(-b[i]) - a[i]))

        u = jax.lax.fori_loop(0, len(self.order), find, jnp.zeros_like(v))
        return u[np.argsort(self.order)]


class HostBend(NamedTuple):
    """The same in double precision on the host, for many draws at once."""

    own: Float[np.ndarray, "4 dim"]
    pairs: Float[np.ndarray, "3 pairs"]
    order: tuple[int, ...]

    @classmethod
    def of(cls, bend: Bend) -> "HostBend":
        """The map of a layer."""
        return cls(np.asarray(bend.own, float), np.asarray(bend.pairs, float), bend.order)

    def matrices(self) -> Float[np.ndarray, "3 dim dim"]:
        """S, L and Q with their zeros."""
        dim = len(self.order)
        rows, columns = np.tril_indices(dim, -1)
        full = np.zeros((3, dim, dim))
        full[:, rows, columns] = self.pairs
        return full

    def at(self, u: Float[np.ndarray, "draws dim"]) -> "Bent":
        """Everything about draws, which are in the coordinates' own order."""
        (t, r, a, b), (tilt, turn, square) = self.own, self.matrices()
        u = u[:, self.order]
        slope = r + u @ tilt.T
        log_scale, free = np.clip(slope, -MOST, MOST), np.abs(slope) < MOST
        root = np.sqrt(1 + u**2)
        inner = (np.arcsinh(u) + a) * np.exp(b)
        wide = np.exp(log_scale) * np.sinh(inner)
        v = t + wide + u @ turn.T + (u**2 - 1) @ square.T
        log_det = np.sum(log_scale + np.log(np.cosh(inner)) + b - np.log(root), axis=1)
        return Bent(self, u, v, log_det, inner, np.exp(log_scale) * np.cosh(inner), wide, root, free)

    def inverse(self, v: Float[np.ndarray, "draws dim"]) -> Float[np.ndarray, "draws dim"]:
        """u of images, coordinate after coordinate; both in the coordinates' own order."""
        (t, r, a, b), (tilt, turn, square) = self.own, self.matrices()
        v, u = v[:, self.order], np.empty_like(v)
        for i in range(len(self.order)):
            known = u[:, :i]
            rest = v[:, i] - t[i] - known @ turn[i, :i] - (known**2 - 1) @ square[i, :i]
            s = rest * np.exp(-np.clip(r[i] + known @ tilt[i, :i], -MOST, MOST))
            u[:, i] = np.sinh(np.arcsinh(s) * np.exp(-b[i]) - a[i])
        return u[:, np.argsort(self.order)]


class Bent(NamedTuple):
    """Draws u and their images v, both in the map's order, and what derivatives are made of.

    `rise` is exp(log scale) cosh(inner), `wide` the same with sinh, `root` is sqrt(1 + u^2), `free` says
    where the log scale is within its bounds.
    """

    bend: HostBend
    u: Float[np.ndarray, "draws dim"]
    v: Float[np.ndarray, "draws dim"]
    log_det: Float[np.ndarray, " draws"]
    inner: Float[np.ndarray, "draws dim"]
    rise: Float[np.ndarray, "draws dim"]
    wide: Float[np.ndarray, "draws dim"]
    root: Float[np.ndarray, "draws dim"]
    free: np.ndarray

    @property
    def image(self) -> Float[np.ndarray, "draws dim"]:
        """v in the coordinates' own order."""
        return self.v[:, np.argsort(self.bend.order)]

    def score(self) -> Float[np.ndarray, "draws dim"]:
        """grad_v of the log density of v, for u ~ N(0, I), in the coordinates' own order."""
        tilt, turn, square = self.bend.matrices()
        b, u = self.bend.own[3], self.u
        # u's score minus the gradient of log|det J|.
        left = -u - self.free @ tilt - np.exp(b) * np.tanh(self.inner) / self.root + u / self.root**2
        diagonal = self.rise * np.exp(b) / self.root
        # Coordinates are rows from here on. Row k of J to the left of its diagonal is
        # wide_k tilt_k + turn_k + 2 square_k u, wide_k only where the scale is within its bounds.
        left, diagonal, u, wide = (
            np.ascontiguousarray(x.T) for x in (left, diagonal, u, self.free * self.wide)
        )
        found, scaled = np.empty_like(left), np.empty_like(left)
        for last in range(len(left), 0, -BLOCK):
            first = max(0, last - BLOCK)
            for k in range(last - 1, first - 1, -1):
                np.divide(left[k], diagonal[k], out=found[k])
                np.multiply(found[k], wide[k], out=scaled[k])
                row = np.multiply.outer(tilt[k, first:k], scaled[k])
                row += np.multiply.outer(turn[k, first:k], found[k])
                row += np.multiply.outer(2 * square[k, first:k], found[k]) * u[first:k]
                left[first:k] -= row
            block = slice(first, last)
            left[:first] -= tilt[block, :first].T @ scaled[block] + turn[block, :first].T @ found[block]
            left[:first] -= 2 * u[:first] * (square[block, :first].T @ found[block])
        return found.T[:, np.argsort(self.bend.order)]

    def pull(self, g: Float[np.ndarray, "draws dim"]) -> HostBend:
        """Cotangents at the images, pulled back to the parameters and averaged over the draws."""
        u, n, b = self.u, len(self.u), self.bend.own[3]
        g = g[:, self.bend.order]
        spread, skewed = g * self.free * self.wide, g * self.rise * np.exp(b)
        own = [g, spread, skewed, skewed * self.inner * np.exp(-b)]
        rows, columns = np.tril_indices(u.shape[1], -1)
        matrices = (spread.T @ u, g.T @ u, g.T @ (u**2 - 1))
        pairs = np.stack([matrix[rows, columns] for matrix in matrices]) / n
        return HostBend(np.stack([np.mean(x, axis=0) for x in own]), pairs, self.bend.order)
