"""What is known of the locals once the globals are drawn: a Gaussian for each block, or a skewed one."""

import abc
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...structure import BlockRoot, Structure
from .skew import log_slope, skewed, unskewed


class Locals(NamedTuple):
    """z = mean + R t, where t is a base draw, skewed coordinate by coordinate where `skew` is given.

    The root R has no globals: its corner and border are empty.
    """

    mean: Float[Array, "b n"]
    root: BlockRoot
    skew: Float[Array, "b n"] | None = None

    def transport(self, e: Float[Array, "b n"]) -> Float[Array, "b n"]:
        """z."""
        t = e if self.skew is None else skewed(e, self.skew)
        return self.mean + self.root.times((_none(e), t))[1]

    def inverse(self, z: Float[Array, "b n"]) -> Float[Array, "b n"]:
        """e."""
        t = self.root.solve((_none(z), z - self.mean))[1]
        return t if self.skew is None else unskewed(t, self.skew)

    def log_det(self, e: Float[Array, "b n"]) -> Float[Array, ""]:
        """log |dz/de|."""
        own = self.root.log_det()
        return own if self.skew is None else own + jnp.sum(log_slope(e, self.skew))


class AbstractConditional(eqx.Module):
    """How the locals follow the globals."""

    structure: eqx.AbstractVar[Structure]

    @abc.abstractmethod
    def at(self, g: Float[Array, " k"]) -> Locals:
        """The distribution of the locals given the globals."""


def local_root(
    diagonal: Float[Array, "b b n"], transition: Float[Array, "b b before"] | None = None
) -> BlockRoot:
    """The root of locals alone."""
    b, _, n = diagonal.shape
    empty = jnp.zeros((0, 0), diagonal.dtype), jnp.zeros((b, 0, n), diagonal.dtype)
    return BlockRoot(*empty, diagonal, transition)


def _none(like: Float[Array, "b n"]) -> Float[Array, "0"]:
    return jnp.zeros(0, like.dtype)
