"""Products with the Hessian of a target at random points, counted: one program for all of them."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._util.compiling import ONCE, SOONER, program
from ..._util.device import on_device
from ...targets import Target

# Products of the Hessian at a point with vectors, on the host.
Products = Callable[
    [Float[np.ndarray, " dim"], Float[np.ndarray, "vectors dim"]], Float[np.ndarray, "vectors dim"]
]
# Products that a call of the program takes, and likelihood values of those worked on together.
AT_ONCE, VALUES = 16, 2**22
# Spreads of random points about the centre, the widest first: where the Hessian is not a number, closer.
SPREADS = (0.5, 0.1, 0.01)
# Rows times coordinates up to which a program of some hundred products compiles for longer than it runs,
# whatever it is made of.
SOON = 2**16
# Random vectors that the sizes of rows are taken from.
SIZING = 2


class HessianProducts:
    """S^-1 H S^-1 v of a target at one random point at a time, as double precision on the host.

    S^2 is about the length of the Hessian's rows, so that coordinates of different scales compare.
    `products` are those of a program that is there already.
    """

    def __init__(
        self,
        target: Target,
        dim: int,
        rng: np.random.Generator,
        center: Any = None,
        products: Products | None = None,
    ):
        self.target, self.dim, self._rng = target, dim, rng
        self._products = self._by_own_program if products is None else products
        self.dtype = jnp.zeros(()).dtype
        self.center = np.zeros(dim) if center is None else np.asarray(center, float)
        self.count, self.points = 0, 0
        self._point: Float[np.ndarray, " dim"] | None = None
        self._scale = np.ones(dim)

    @property
    def resolution(self) -> float:
        """What counts as zero, relative to the other entries: many roundings, few nats.

        A coupling that is smaller changes correlations by less than that.
        """
        return float(np.finfo(self.dtype).eps) ** 0.5

    def move(self) -> bool:
        """To a new random point; False if there is none at which the Hessian is finite."""
        for spread in SPREADS:
            self._point = self.center + spread * self._rng.standard_normal(self.dim)
            self._scale = np.ones(self.dim)
            vectors = np.stack([self.vector() for _ in range(SIZING)])
            sizes = np.sqrt(np.mean(self(vectors) ** 2, axis=0))
            if np.all(np.isfinite(sizes)):
                self._scale = np.sqrt(np.maximum(sizes, self.resolution * np.median(sizes) + 1e-30))
                self.points += 1
                return True
        return False

    def vector(self) -> Float[np.ndarray, " dim"]:
        """A random vector of numbers around plus and minus one.

        Not of signs alone: two equal ones could not be told from each other, and what one coordinate
        does to another would look like what it does to itself.
        """
        return self._rng.choice([-1.0, 1.0], self.dim) * self._rng.uniform(0.5, 1.5, self.dim)

    def __call__(self, v: Float[np.ndarray, "vectors dim"]) -> Float[np.ndarray, "vectors dim"]:
        """The products with each vector, at the present point."""
        assert self._point is not None
        self.count += len(v)
        return self._products(self._point, v / self._scale) / self._scale

    def _by_own_program(
        self, z: Float[np.ndarray, " dim"], v: Float[np.ndarray, "vectors dim"]
    ) -> Float[np.ndarray, "vectors dim"]:
        point, found = on_device(z, self.dtype), []
        made = _products_once if self.target.rows * self.dim <= SOON else _products
        for first in range(0, len(v), AT_ONCE):
            block = np.zeros((AT_ONCE, self.dim), self.dtype)
            some = v[first : first + AT_ONCE]
            block[: len(some)] = some
            found.append(np.asarray(made(self.target, point, on_device(block)), float)[: len(some)])
        return np.concatenate(found)


def _products_of(
    target: Target, z: Float[Array, " dim"], v: Float[Array, "vectors dim"]
) -> Float[Array, "vectors dim"]:
    _, push = jax.linearize(jax.grad(target.log_density), z)
    together = max(1, min(AT_ONCE, VALUES // max(1, target.rows)))
    return jax.lax.map(push, v, batch_size=together)


_products = program(_products_of, level=SOONER)
_products_once = program(_products_of, level=ONCE)
