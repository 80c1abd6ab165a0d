"""Locals whose means and log scales are known functions of the globals, in NumPy, without Newton steps.

  g = c + C u_g,    z_i = M_i(g) + exp(S_i(g)) (R u)_i,    M = phi(g) A,    S = psi(g) B.
A chain needs the map and its derivatives thousands of times, and any map that can be inverted will do:
it only has to be close to z_i = m_i(g) + L_i(g) e_i of nested locals, which take some gradients of the
model each. The functions are fitted to m_i and the sds of L_i at globals of q. R is the root of the
locals' correlations at the middle of the globals.

Features are linear in the globals, and bend with those that scales follow most: softplus functions,
which are linear far out, so that scales stay within bounds that data has shown. Means have their
products with the other globals too: locals are drawn to a common mean the more, the smaller their scale.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ...structure import Structure
from .host_locals import join, split
from .host_root import HostRoot

Points = Float[np.ndarray, "points dim"]
# Places of the bends in sds of a global, and how sharp they are.
KNOTS, SHARP = (-1.5, 0.0, 1.5), 2.0
# Globals with bends at most, and points that a feature asks for.
BENT, EACH = 2, 3
# Ridge of the least squares, as a share of the weights' sum.
RIDGE = 1e-6


class Features(NamedTuple):
    """Functions of globals: linear ones of all, bends of some, and products of these with the others."""

    center: Float[np.ndarray, " k"]
    std: Float[np.ndarray, " k"]
    bent: Int[np.ndarray, " bent"]
    products: bool

    def __call__(
        self, g: Float[np.ndarray, "points k"]
    ) -> tuple[Float[np.ndarray, "points f"], Float[np.ndarray, "points f k"]]:
        """Their values and slopes by g."""
        h = (g - self.center) / self.std
        (points, k), bend = h.shape, SHARP * (h[:, self.bent, None] - np.array(KNOTS))
        one = np.broadcast_to(np.eye(k), (points, k, k))
        values, slopes = [np.ones((points, 1)), h], [np.zeros((points, 1, k)), one]
        curve, slope = np.logaddexp(0.0, bend) / SHARP, 0.5 * (1 + np.tanh(0.5 * bend))
        for place, j in enumerate(self.bent):
            own = np.concatenate([h[:, [j]], curve[:, place]], axis=1)
            along = np.concatenate([np.ones((points, 1)), slope[:, place]], axis=1)
            values.append(own[:, 1:])
            slopes.append(along[:, 1:, None] * one[:, None, j])
            for other in range(k) if self.products else ():
                if other != j:
                    values.append(own * h[:, [other]])
                    by_own = (along * h[:, [other]])[:, :, None] * one[:, None, j]
                    slopes.append(by_own + own[:, :, None] * one[:, None, other])
        return np.concatenate(values, axis=1), np.concatenate(slopes, axis=1) / self.std


class Following(NamedTuple):
    """The map, its inverse and its derivatives. Points are in the order of the coordinates.

    `root` is C, `correlated` is R, and `scale` has the sds of R e, by which it is divided.
    """

    structure: Structure
    of_mean: Features
    of_scale: Features
    mean: Float[np.ndarray, "f locals"]
    log_std: Float[np.ndarray, "f locals"]
    center: Float[np.ndarray, " k"]
    root: Float[np.ndarray, "k k"]
    correlated: HostRoot
    scale: Float[np.ndarray, " locals"]

    def transport(self, u: Points) -> tuple[Points, Float[np.ndarray, " points"]]:
        """z and log |dz/du|, up to a constant."""
        first, own = split(self.structure, u)
        g = self.center + first @ self.root.T
        mean, log_std = self.of_mean(g)[0] @ self.mean, self.of_scale(g)[0] @ self.log_std
        z = mean + np.exp(log_std) * self._moves(own)
        return self._joined(g, z), np.sum(log_std, axis=1)

    def inverse(self, z: Points) -> Points:
        """u of z."""
        g, own = split(self.structure, z)
        mean, log_std = self.of_mean(g)[0] @ self.mean, self.of_scale(g)[0] @ self.log_std
        moves = (own.reshape(len(own), -1) - mean) * np.exp(-log_std) * self.scale
        first = np.linalg.solve(self.root, (g - self.center).T).T
        return join(self.structure, first, self.correlated.solve(moves.reshape(own.shape)))

    def pull(self, u: Points, slope: Points) -> Points:
        """The gradient by u of f(z(u)) + log |dz/du|, for f with this gradient by z."""
        (first, own), (by_g, by_z) = split(self.structure, u), split(self.structure, slope)
        g, by_z = self.center + first @ self.root.T, by_z.reshape(len(u), -1)
        (_, along_mean), (psi, along_scale) = self.of_mean(g), self.of_scale(g)
        std = np.exp(psi @ self.log_std)
        moves = std * self._moves(own)
        by_mean, by_scale = by_z @ self.mean.T, (by_z * moves + 1) @ self.log_std.T
        by_g = by_g + np.einsum("pf,pfk->pk", by_mean, along_mean)
        by_g = by_g + np.einsum("pf,pfk->pk", by_scale, along_scale)
        pulled = (by_z * std / self.scale).reshape(own.shape)
        return join(self.structure, by_g @ self.root, self.correlated.transposed_times(pulled))

    def _moves(self, own: Any) -> Float[np.ndarray, "points locals"]:
        return self.correlated.times(own).reshape(len(own), -1) / self.scale

    def _joined(self, g: Any, z: Any) -> Points:
        return join(self.structure, g, z.reshape(len(z), self.structure.b, self.structure.n))


def fitted(
    structure: Structure,
    g: Float[np.ndarray, "points k"],
    mean: Float[np.ndarray, "points locals"],
    std: Float[np.ndarray, "points locals"],
    middle: HostRoot,
) -> Following:
    """Least squares at some globals for which the locals' means and sds are known.

    `middle` is the root of the locals at one value of the globals. Errors of a mean count in sds there.
    """
    points, k = g.shape
    center, spread = np.mean(g, axis=0), np.maximum(np.std(g, axis=0), np.finfo(float).tiny)
    log_std, h = np.log(std), (g - center) / spread
    linear = np.linalg.lstsq(np.column_stack([np.ones(points), h]), log_std, rcond=None)[0][1:]
    order = np.argsort(-np.sum(linear**2, axis=1))
    # As many bends as there are points for their features.
    counts = [1 + k + bent * (len(KNOTS) + (len(KNOTS) + 1) * (k - 1)) for bent in range(BENT + 1)]
    bent = max([0, *(n for n, count in enumerate(counts) if n <= k and EACH * count <= points)])
    of_mean = Features(center, spread, order[:bent], products=True)
    of_scale = of_mean._replace(products=False)
    by_scale = _least_squares(of_scale(g)[0], log_std, np.ones_like(log_std))
    # In the neck a mean must be right to a small sd; weights over a range that digits can hold.
    weights = np.exp(-2 * (log_std - np.min(log_std, axis=0)))
    by_mean = _least_squares(of_mean(g)[0], mean, np.maximum(weights, RIDGE))
    root = np.linalg.cholesky(np.atleast_2d(np.cov(g.T)) + 1e-12 * np.diag(spread**2))
    scale = middle.std().reshape(-1)
    return Following(structure, of_mean, of_scale, by_mean, by_scale, center, root, middle, scale)


def _least_squares(
    features: Float[np.ndarray, "points f"],
    values: Float[np.ndarray, "points locals"],
    weights: Float[np.ndarray, "points locals"],
) -> Float[np.ndarray, "f locals"]:
    """Weighted least squares for every local."""
    points, count = features.shape
    outer = (features[:, :, None] * features[:, None, :]).reshape(points, -1)
    matrices = (weights.T @ outer).reshape(-1, count, count)
    ridge = RIDGE * np.sum(weights, axis=0) * math.sqrt(1 / points)
    matrices = matrices + ridge[:, None, None] * np.eye(count)
    right = (features.T @ (weights * values)).T
    return np.linalg.solve(matrices, right[:, :, None])[:, :, 0].T
